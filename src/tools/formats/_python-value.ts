import { quoteAt, readPythonString, type IsBeyond } from './_python-string.ts'
import { isWordCode, skipSpace } from './_skip.ts'

/** A Python literal as JSON text; if `json` is undefined, `end` is where the text stopped making sense. */
export interface PythonValue {
  readonly json: string | undefined
  readonly end: number
}

/**
 * Reads the literal that starts at `from`: strings, numbers, True, False, None, lists, tuples and dicts in any depth. Numbers
 * keep their digits, however many there are.
 */
export function readPythonValue(text: string, from: number, isBeyond: IsBeyond): PythonValue {
  return new LiteralReader(text, from, isBeyond).read()
}

interface Bracket {
  readonly closer: ')' | ']' | '}'
  /** The index of the bracket among the pieces. */
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
    const within = this.#brackets.at(-1)
    this.#at = skipSpace(this.#text, this.#at)
    if (within && this.#text[this.#at] === within.closer) {
      this.#close(within)
      return 'value'
    }
    if (within) {
      if (within.items > 0) this.#pieces.push(',')
      within.items += 1
      if (within.closer === '}' && !this.#readKey()) return 'failed'
    }
    const closer = closerOf(this.#text[this.#at])
    if (closer === undefined) return this.#readAtom() ? 'value' : 'failed'
    this.#brackets.push({ closer, piece: this.#pieces.length, items: 0, hasComma: false })
    this.#pieces.push(closer === '}' ? '{' : '[')
    this.#at += 1
    return 'bracket'
  }

  /** Reads behind a value: brackets close, until a comma asks for the next value. */
  #proceed(): 'more' | 'end' | 'failed' {
    for (;;) {
      const within = this.#brackets.at(-1)
      if (!within) return 'end'
      this.#at = skipSpace(this.#text, this.#at)
      const char = this.#text[this.#at]
      if (char === ',') {
        within.hasComma = true
        this.#at += 1
        return 'more'
      }
      if (char !== within.closer) return 'failed'
      this.#close(within)
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

function closerOf(char: string | undefined): Bracket['closer'] | undefined {
  if (char === '[') return ']'
  if (char === '(') return ')'
  return char === '{' ? '}' : undefined
}

function readString(text: string, at: number, quote: number, isBeyond: IsBeyond): PythonValue {
  const isRaw = /r/i.test(text.slice(at, quote))
  const read = readPythonString(text, { quote, isRaw, isBeyond })
  return typeof read === 'number' ? { json: undefined, end: read } : { json: JSON.stringify(read.value), end: read.end }
}

/** Also the names of JSON, since models mix the two. */
const constants: ReadonlyMap<string, string> = new Map([
  ['True', 'true'],
  ['true', 'true'],
  ['False', 'false'],
  ['false', 'false'],
  ['None', 'null'],
  ['null', 'null'],
])

/** Reads a number or a constant. */
function readWord(text: string, start: number): PythonValue {
  let end = start
  while (isNumberCode(text.charCodeAt(end))) end += 1
  const word = text.slice(start, end)
  const json = constants.get(word) ?? numberJson(word)
  return { json, end: json === undefined ? start : end }
}

/** Letters, digits, `_`, `.` and signs. */
function isNumberCode(code: number): boolean {
  return isWordCode(code) || code === 0x2e || code === 0x2b || code === 0x2d
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
