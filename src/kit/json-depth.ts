import { backslash, closeBrace, closeBracket, openBrace, openBracket, quote } from './json-bytes.ts'

/** Within a string, so many bytes are looked at one by one before the rest is searched at once: most strings are short. */
const shortString = 32

/** What is wrong with a body that nests too deep. If only a part of it is given, `within` is how many levels are around that. */
export function depthProblem(bytes: Uint8Array, maxDepth: number, within = 0): string | undefined {
  if (!isDeeperThan(bytes, maxDepth - within)) return undefined
  return `a body has at most ${maxDepth} levels of nesting; flatten it`
}

/**
 * Whether JSON nests deeper than so many levels, told from its bytes before anything is made of them. A part of it may be
 * given that begins where a value may. What is not valid JSON may get either answer: the parser refuses it afterwards.
 */
export function isDeeperThan(bytes: Uint8Array, maxDepth: number): boolean {
  let depth = 0
  for (let at = 0; at < bytes.length; at += 1) {
    const byte = bytes[at]
    if (byte === quote) at = endOfString(bytes, at + 1)
    else if (byte === openBrace || byte === openBracket) {
      depth += 1
      if (depth > maxDepth) return true
    } else if (byte === closeBrace || byte === closeBracket) depth -= 1
  }
  return false
}

/** Where the quote is that ends the string; the end of all if there is none. */
function endOfString(bytes: Uint8Array, from: number): number {
  const soon = Math.min(bytes.length, from + shortString)
  for (let at = from; at < soon; at += 1) {
    if (bytes[at] === quote) return at
    if (bytes[at] === backslash) at += 1
  }
  // The last byte that was looked at may have been a backslash, and the one after it belongs to it.
  let at = bytes.indexOf(quote, soon)
  while (at !== -1 && isEscaped(bytes, at, from)) at = bytes.indexOf(quote, at + 1)
  return at === -1 ? bytes.length : at
}

function isEscaped(bytes: Uint8Array, at: number, from: number): boolean {
  let before = at - 1
  while (before >= from && bytes[before] === backslash) before -= 1
  return (at - 1 - before) % 2 === 1
}
