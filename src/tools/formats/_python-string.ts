import { skipSpace } from './_skip.ts'

/** A string literal that was read. */
export interface PythonString {
  readonly value: string
  readonly end: number
}

/** Whether the text at a place is the beginning of something that a string cannot contain. */
export type IsBeyond = (text: string, at: number) => boolean

const escapes: ReadonlyMap<string, string> = new Map([
  ['n', '\n'],
  ['t', '\t'],
  ['r', '\r'],
  ['\\', '\\'],
  ["'", "'"],
  ['"', '"'],
  ['a', '\x07'],
  ['b', '\b'],
  ['f', '\f'],
  ['v', '\v'],
  ['\n', ''],
])

/** How many hexadecimal digits follow each escape. */
const hexEscapes: ReadonlyMap<string, number> = new Map([
  ['x', 2],
  ['u', 4],
  ['U', 8],
])

/** The place of the quote that opens a string at `at`, after a prefix such as `r`; -1 if no string starts there. */
export function quoteAt(text: string, at: number): number {
  for (let quote = at; quote <= at + 2; quote += 1) {
    const char = text.charAt(quote)
    if (char === '"' || char === "'") return quote
    if (char === '' || !'rRbBuUfF'.includes(char)) return -1
  }
  return -1
}

export interface StringStart {
  /** The place of the string's first quote. */
  readonly quote: number
  /** Whether backslashes are plain text. */
  readonly isRaw: boolean
  readonly isBeyond: IsBeyond
}

/**
 * Reads a string, or returns the place where it fails to be one. Unlike in Python, a string in single quotes may go over several
 * lines, since models write code that way; but not into text that is `isBeyond`.
 */
export function readPythonString(
  text: string,
  { quote: quoteStart, isRaw, isBeyond }: StringStart,
): PythonString | number {
  const char = text.charAt(quoteStart)
  const isTriple = text.startsWith(char.repeat(3), quoteStart)
  const quote = isTriple ? char.repeat(3) : char
  let value = ''
  let at = quoteStart + quote.length
  let copied = at
  while (at < text.length) {
    const next = text[at]
    if (next === char && (!isTriple || text.startsWith(quote, at))) {
      return { value: value + text.slice(copied, at), end: at + quote.length }
    }
    if (next === '\\') {
      if (isRaw) {
        at += 2
        continue
      }
      const escape = readEscape(text, at)
      value += text.slice(copied, at) + escape.value
      at = escape.end
      copied = at
    } else if (next === '\n' && !isTriple) {
      at = skipSpace(text, at)
      if (isBeyond(text, at)) return at
    } else {
      at += 1
    }
  }
  // Triple quotes may hold anything, so the text behind the quotes is looked at again.
  return isTriple ? quoteStart : text.length
}

/** Reads the escape at `at`. A backslash that starts no escape stands for itself, as in Python. */
function readEscape(text: string, at: number): PythonString {
  const char = text.charAt(at + 1)
  const simple = escapes.get(char)
  if (simple !== undefined) return { value: simple, end: at + 2 }
  const digits = hexEscapes.get(char)
  if (digits !== undefined) {
    const end = at + 2 + digits
    const code = codeOf(text.slice(at + 2, end), digits)
    if (code !== undefined) return { value: String.fromCodePoint(code), end }
  }
  const octal = /^[0-7]{1,3}/.exec(text.slice(at + 1, at + 4))?.[0]
  if (octal !== undefined) return { value: String.fromCodePoint(Number.parseInt(octal, 8)), end: at + 1 + octal.length }
  return { value: `\\${char}`, end: at + 1 + char.length }
}

function codeOf(written: string, digits: number): number | undefined {
  if (written.length !== digits || !/^[0-9a-fA-F]+$/.test(written)) return undefined
  const code = Number.parseInt(written, 16)
  return code <= 0x10ffff ? code : undefined
}
