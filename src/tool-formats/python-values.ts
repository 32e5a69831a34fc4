import { endOf, skipSpace } from './json-calls.ts'

/** A Python literal as JSON text; if `json` is undefined, `end` is where the text stopped making sense. */
export interface PythonValue {
  readonly json: string | undefined
  readonly end: number
}

/** Reads strings, numbers, True, False, None, lists, tuples and dicts in any depth. Numbers keep all their digits. */
export function readPythonValue(text: string, from: number, isBeyond: IsBeyond): PythonValue {
  return new LiteralReader(text, from, isBeyond).read()
}

interface Bracket {
  readonly closer: ')' | ']' | '}'
  readonly piece: number
  items: number
  hasComma: boolean
}

/** Keeps the brackets in a list and not on the stack, so that no depth is too deep. */
class LiteralReader {
  readonly #text: string
  readonly #isBeyond: IsBeyond
  readonly #pieces: string[] = []
  readonly #brackets: Bracket[] = []
  #at: number

  constructor(text: string, from: number, isBeyond: IsBeyond) {
    this.#text = text
    this.#at = from
    this.#isBeyond = isBeyond
  }

  read(): PythonValue {
    for (;;) {
      const begun = this.#begin()
      if (begun === 'bracket') continue
      const next = begun === 'value' ? this.#proceed() : begun
      if (next === 'failed') return { json: undefined, end: this.#at }
      if (next === 'end') return { json: this.#pieces.join(''), end: this.#at }
    }
  }

  /** Reads where a value may stand: a value, a bracket that opens one, or the bracket that closes after a comma or at once. */
  #begin(): 'value' | 'bracket' | 'failed' {
    const settlesWithin = this.#brackets.at(-1)
    this.#at = skipSpace(this.#text, this.#at)
    if (settlesWithin && this.#text[this.#at] === settlesWithin.closer) {
      this.#close(settlesWithin)
      return 'value'
    }
    if (settlesWithin) {
      if (settlesWithin.items > 0) this.#pieces.push(',')
      settlesWithin.items += 1
      if (settlesWithin.closer === '}' && !this.#readKey()) return 'failed'
    }
    const closer = closers.get(this.#text[this.#at])
    if (closer === undefined) return this.#readAtom() ? 'value' : 'failed'
    this.#brackets.push({ closer, piece: this.#pieces.length, items: 0, hasComma: false })
    this.#pieces.push(closer === '}' ? '{' : '[')
    this.#at += 1
    return 'bracket'
  }

  /** Reads behind a value: brackets close, until a comma asks for the next value. */
  #proceed(): 'more' | 'end' | 'failed' {
    for (;;) {
      const settlesWithin = this.#brackets.at(-1)
      if (!settlesWithin) return 'end'
      this.#at = skipSpace(this.#text, this.#at)
      const char = this.#text[this.#at]
      if (char === ',') {
        settlesWithin.hasComma = true
        this.#at += 1
        return 'more'
      }
      if (char !== settlesWithin.closer) return 'failed'
      this.#close(settlesWithin)
    }
  }

  #close({ closer, piece, items, hasComma }: Bracket): void {
    this.#brackets.pop()
    this.#at += 1
    // `(1)` is 1, and only the comma in `(1,)` makes a tuple of it.
    if (closer === ')' && items === 1 && !hasComma) this.#pieces[piece] = ''
    else this.#pieces.push(closer === ')' ? ']' : closer)
  }

  #readKey(): boolean {
    const isText = quoteAt(this.#text, this.#at) !== -1
    if (!this.#readAtom()) return false
    const last = this.#pieces.length - 1
    // JSON allows only strings as keys.
    if (!isText) this.#pieces[last] = JSON.stringify(this.#pieces[last])
    this.#at = skipSpace(this.#text, this.#at)
    if (this.#text[this.#at] !== ':') return false
    this.#pieces.push(':')
    this.#at = skipSpace(this.#text, this.#at + 1)
    return true
  }

  #readAtom(): boolean {
    const quote = quoteAt(this.#text, this.#at)
    const atom = quote === -1 ? readWord(this.#text, this.#at) : readString(this.#text, this.#at, quote, this.#isBeyond)
    this.#at = atom.end
    if (atom.json === undefined) return false
    this.#pieces.push(atom.json)
    return true
  }
}

const closers = new Map<string | undefined, Bracket['closer']>([
  ['[', ']'],
  ['(', ')'],
  ['{', '}'],
])

function readString(text: string, at: number, quote: number, isBeyond: IsBeyond): PythonValue {
  const isRaw = /r/i.test(text.slice(at, quote))
  const read = readPythonString(text, quote, isBeyond, isRaw)
  return typeof read === 'number' ? { json: undefined, end: read } : { json: JSON.stringify(read.value), end: read.end }
}

/** Also the names of JSON, since models mix the two. */
const constants = new Map(
  Object.entries({ True: 'true', true: 'true', False: 'false', false: 'false', None: 'null', null: 'null' }),
)

function readWord(text: string, start: number): PythonValue {
  const end = endOf(/[\w.+-]*/y, text, start)
  const word = text.slice(start, end)
  const json = constants.get(word) ?? numberJson(word)
  return { json, end: json === undefined ? start : end }
}

/** A longer number would take long to write as a decimal. */
const maxRadixChars = 34

function numberJson(word: string): string | undefined {
  const radix = /^([+-]?)(0[xXoObB][0-9a-fA-F_]+)$/.exec(word)
  if (radix) return word.length > maxRadixChars ? undefined : radixJson(radix[1] === '-', radix[2] ?? '')
  const parts = /^([+-]?)(\d[\d_]*)?(?:(\.)(\d[\d_]*)?)?(?:[eE]([+-]?\d+))?$/.exec(word)
  if (!parts) return undefined
  const [, sign, whole, point, fraction, exponent] = parts
  if (whole === undefined && fraction === undefined) return undefined
  const digits = whole ?? '0'
  // As in Python, which refuses 007.
  if (digits.length > 1 && digits.startsWith('0')) return undefined
  const decimals = point === undefined ? '' : `.${fraction ?? '0'}`
  const power = exponent === undefined ? '' : `e${exponent}`
  return `${sign === '-' ? '-' : ''}${digits}${decimals}${power}`.replaceAll('_', '')
}

function radixJson(isNegative: boolean, digits: string): string | undefined {
  try {
    return `${isNegative ? '-' : ''}${BigInt(digits.replaceAll('_', ''))}`
  } catch {
    return undefined
  }
}

interface PythonString {
  readonly value: string
  readonly end: number
}

/** Whether the text at a place is the beginning of something that a string cannot contain. */
type IsBeyond = (text: string, at: number) => boolean

/** A backslash before a line break joins the lines; before itself and before quotes it is left out. */
const escapes = new Map(Object.entries({ n: '\n', t: '\t', r: '\r', a: '\x07', b: '\b', f: '\f', v: '\v', '\n': '' }))

/** The place of the quote that opens a string at `at`, after a prefix such as `r`; -1 if no string starts there. */
export function quoteAt(text: string, at: number): number {
  for (let quote = at; quote <= at + 2; quote += 1) {
    const char = text.charAt(quote)
    if (char === '"' || char === "'") return quote
    if (char === '' || !'rRbBuUfF'.includes(char)) return -1
  }
  return -1
}

/** A string, or the place where it fails to be one. Over several lines, as models write code, but not into what `isBeyond`. */
export function readPythonString(
  text: string,
  quoteStart: number,
  isBeyond: IsBeyond,
  isRaw = false,
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
  const simple = escapes.get(char) ?? (/[\\'"]/.test(char) ? char : undefined)
  if (simple !== undefined) return { value: simple, end: at + 2 }
  const numeric = /^(?:x([\da-fA-F]{2})|u([\da-fA-F]{4})|U([\da-fA-F]{8})|([0-7]{1,3}))/.exec(
    text.slice(at + 1, at + 10),
  )
  if (numeric) {
    const [whole, x, u, long, octal] = numeric
    const code = octal === undefined ? Number.parseInt(x ?? u ?? long ?? '', 16) : Number.parseInt(octal, 8)
    if (code <= 0x10ffff) return { value: String.fromCodePoint(code), end: at + 1 + whole.length }
  }
  return { value: `\\${char}`, end: at + 1 + char.length }
}
