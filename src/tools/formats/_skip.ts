/** The first place from `at` on that is not white space. */
export function skipSpace(text: string, at: number): number {
  let end = at
  while (isSpace(text.charCodeAt(end))) end += 1
  return end
}

export function isSpace(code: number): boolean {
  return code === 0x20 || (code >= 0x09 && code <= 0x0d) || code === 0xa0 || code === 0xfeff
}

const fence = '```'

/** The place where the content of a code fence at `at` starts; `at` itself if there is no fence. */
export function skipFence(text: string, at: number): number {
  if (!text.startsWith(fence, at)) return at
  let end = at + fence.length
  while (isWordCode(text.charCodeAt(end))) end += 1
  return skipSpace(text, end)
}

export function isFence(text: string, at: number): boolean {
  return text.startsWith(fence, at)
}

/** The place where an object at `at` starts, perhaps in a code fence and as the first of a list. */
export function objectStart(text: string, at: number): number {
  const start = skipFence(text, at)
  return text[start] === '[' ? skipSpace(text, start + 1) : start
}

/** Skips what may stand between two objects, including a bracket too many. */
export function skipSeparators(text: string, at: number): number {
  let end = at
  while (isSpace(text.charCodeAt(end)) || (end < text.length && ';,}'.includes(text.charAt(end)))) end += 1
  return end
}

/** ASCII letters, digits and `_`. */
export function isWordCode(code: number): boolean {
  return (
    (code >= 0x61 && code <= 0x7a) || (code >= 0x41 && code <= 0x5a) || (code >= 0x30 && code <= 0x39) || code === 0x5f
  )
}
