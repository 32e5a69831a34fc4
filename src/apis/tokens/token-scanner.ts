import { isUtf8 } from 'node:buffer'
import type { RoutedExperts } from '../../schema/index.ts'
import {
  closeBracket,
  comma,
  elementsEnd,
  isDigit,
  isKey,
  keyBytes,
  membersEnd,
  nonSpace,
  notWalkable,
  openBrace,
  openBracket,
  requirePlainKey,
  spaceEnd,
  valueEnd,
} from '../../kit/index.ts'
import { readExperts } from './routed-experts.ts'

/** The long lists of a reply, or of one event of a stream. */
export interface TokenArrays {
  promptIds?: Int32Array<ArrayBuffer> | undefined
  ids?: Int32Array<ArrayBuffer> | undefined
  logprobs?: Float32Array<ArrayBuffer> | undefined
  routedExperts?: RoutedExperts | undefined
}

export interface ScannedReply {
  readonly tokens: TokenArrays
  /** The JSON without the members whose lists were taken out; `null` is left of log-probabilities. */
  readonly rest: string
  /** Set if the reply is not UTF-8: bytes of it were replaced in `rest`. */
  readonly isBroken?: true
}

export interface CachedPrompt {
  /** Extends the prompt by the ids `more`, whose text begins with a comma, and returns all ids. */
  extend(text: Uint8Array, more: Int32Array<ArrayBuffer>): Int32Array<ArrayBuffer>
}

export interface PromptReader {
  /** Finds the known prompt that the ids at `at` begin with. */
  find(bytes: Uint8Array, at: number): { readonly prompt: CachedPrompt; readonly end: number } | undefined
  /** Adds a prompt. `text` is everything between the brackets, and stays the caller's. */
  add(text: Uint8Array, ids: Int32Array<ArrayBuffer>): void
}

/** Shorter replies are not scanned, because it gains little: 2 KB take 8 µs instead of the 11 of `JSON.parse`. */
export const minScannedBytes = 4 * 1024

/**
 * Takes the long lists out of a Chat Completions reply, straight from its bytes into typed arrays, and leaves a small
 * document. Only lists in their usual form and place are taken. Anything else stays in the document, for its reader to take
 * or to refuse; bytes that are no JSON, or have one of the keys twice, are left unchanged. Ids that `prompts` knows are not
 * parsed again.
 */
export function scanReply(bytes: Uint8Array, prompts?: PromptReader): ScannedReply {
  if (!isUtf8(bytes)) return { tokens: {}, rest: textWithout([], bytes), isBroken: true }
  const scan = new TokenScan(bytes, prompts)
  try {
    scan.reply()
  } catch (error) {
    if (error !== notWalkable) throw error
    return { tokens: {}, rest: textWithout([], bytes) }
  }
  return { tokens: scan.tokens, rest: textWithout(scan.cuts, bytes) }
}

const keys = {
  promptIds: keyBytes('prompt_token_ids'),
  choices: keyBytes('choices'),
  ids: keyBytes('token_ids'),
  logprobs: keyBytes('logprobs'),
  content: keyBytes('content'),
  logprob: keyBytes('logprob'),
  experts: keyBytes('routed_experts'),
  /** SGLang's place for what OpenAI's API has no field for, under its newer and its older name. */
  extension: keyBytes('sgl_ext'),
  metaInfo: keyBytes('meta_info'),
}

/** A part of a reply that was taken out, and the text in its place. */
interface Cut {
  readonly start: number
  readonly end: number
  readonly instead: 'null' | ''
}

/** Reads the value of a member, and returns its end. */
type MemberReader = (keyAt: number, at: number) => number

class TokenScan {
  readonly tokens: TokenArrays = {}
  readonly cuts: Cut[] = []
  readonly #bytes: Uint8Array
  readonly #prompts: PromptReader | undefined
  readonly #seen: Uint8Array[] = []

  constructor(bytes: Uint8Array, prompts: PromptReader | undefined) {
    this.#bytes = bytes
    this.#prompts = prompts
  }

  reply(): void {
    const bytes = this.#bytes
    const end = this.#object(spaceEnd(bytes, 0), [
      [keys.choices, (_, at) => this.#choices(at)],
      [keys.promptIds, this.#promptIds],
    ])
    if (spaceEnd(bytes, end) < bytes.length) throw notWalkable
  }

  /** Walks over an object, whose members with a reader are read. Returns its end. */
  #object(start: number, readers: readonly (readonly [Uint8Array, MemberReader])[]): number {
    const bytes = this.#bytes
    if (bytes[start] !== openBrace) return valueEnd(bytes, start)
    return membersEnd(bytes, start, (keyAt, at) => {
      requirePlainKey(bytes, keyAt, at)
      const [key, read] = readers.find(([name]) => isKey(bytes, keyAt, name)) ?? []
      if (!key || !read) return valueEnd(bytes, at)
      // Of a key that comes twice the last one counts, and the one before would stay in the rest.
      if (this.#seen.includes(key)) throw notWalkable
      this.#seen.push(key)
      return read(keyAt, at)
    })
  }

  /** Only the first choice is read: only one is ever asked for. */
  #choices(start: number): number {
    const bytes = this.#bytes
    if (bytes[start] !== openBracket) return valueEnd(bytes, start)
    const readExtension: MemberReader = (_, at) => this.#object(at, [[keys.experts, this.#experts]])
    return elementsEnd(bytes, start, (choice, index) => {
      if (index > 0) return valueEnd(bytes, choice)
      return this.#object(choice, [
        [keys.ids, this.#ids],
        [keys.logprobs, (_, at) => this.#logprobs(at)],
        [keys.experts, this.#experts],
        [keys.extension, readExtension],
        [keys.metaInfo, readExtension],
      ])
    })
  }

  readonly #promptIds: MemberReader = (keyAt, start) => {
    const bytes = this.#bytes
    if (bytes[start] !== openBracket) return valueEnd(bytes, start)
    const first = nonSpace(bytes, start + 1)
    const known = this.#prompts?.find(bytes, first)
    const list: number[] = []
    const end = known ? idsEnd(bytes, known.end, list, true) : idsEnd(bytes, first, list)
    if (end === -1) return valueEnd(bytes, start)
    if (known) {
      this.tokens.promptIds = known.prompt.extend(bytes.subarray(known.end, end), new Int32Array(list))
    } else {
      const ids = new Int32Array(list)
      this.tokens.promptIds = ids
      this.#prompts?.add(bytes.subarray(first, end), ids)
    }
    this.#cutMember(keyAt, end + 1)
    return end + 1
  }

  readonly #ids: MemberReader = (keyAt, start) => {
    const bytes = this.#bytes
    if (bytes[start] !== openBracket) return valueEnd(bytes, start)
    const list: number[] = []
    const end = idsEnd(bytes, start + 1, list)
    if (end === -1) return valueEnd(bytes, start)
    this.tokens.ids = new Int32Array(list)
    this.#cutMember(keyAt, end + 1)
    return end + 1
  }

  #logprobs(start: number): number {
    const bytes = this.#bytes
    const end = this.#object(start, [[keys.content, this.#logprobList]])
    const cut = this.cuts.at(-1)
    const isEmptied = cut && nonSpace(bytes, start + 1) === cut.start && nonSpace(bytes, cut.end) === end - 1
    // The API has the field in every choice: null says that there are none.
    if (isEmptied) this.cuts[this.cuts.length - 1] = { start, end, instead: 'null' }
    return end
  }

  readonly #logprobList: MemberReader = (keyAt, start) => {
    const bytes = this.#bytes
    if (bytes[start] !== openBracket) return valueEnd(bytes, start)
    const text = bufferOf(bytes)
    const values: number[] = []
    let areNumbers = true
    // One reader for all members of all entries: this runs for every sampled token.
    let value: number | undefined
    const readMember: MemberReader = (memberAt, at) => {
      const end = valueEnd(bytes, at)
      if (!isKey(bytes, memberAt, keys.logprob)) requirePlainKey(bytes, memberAt, at)
      // If the key comes twice, the last one counts.
      else if (isNumber(bytes[at])) {
        const float = floatAt(bytes, at, end)
        value = Number.isNaN(float) ? Number(text.toString('latin1', at, end)) : float
      } else value = undefined
      return end
    }
    const end = elementsEnd(bytes, start, (at) => {
      value = undefined
      const entryEnd = bytes[at] === openBrace ? membersEnd(bytes, at, readMember) : valueEnd(bytes, at)
      if (value === undefined) areNumbers = false
      else values.push(value)
      return entryEnd
    })
    if (areNumbers) {
      this.tokens.logprobs = new Float32Array(values)
      this.#cutMember(keyAt, end)
    }
    return end
  }

  readonly #experts: MemberReader = (keyAt, start) => {
    const bytes = this.#bytes
    const end = valueEnd(bytes, start)
    const experts = readExperts(JSON.parse(textWithout([], bytes.subarray(start, end))))
    if (experts) {
      this.tokens.routedExperts = experts
      this.#cutMember(keyAt, end)
    }
    return end
  }

  /** Takes out a member with the comma before it; with the one after it, if none is left before it. */
  #cutMember(keyAt: number, end: number): void {
    const bytes = this.#bytes
    const before = spaceStart(bytes, keyAt) - 1
    if (bytes[before] === comma && before >= (this.cuts.at(-1)?.end ?? 0)) {
      this.cuts.push({ start: before, end, instead: '' })
      return
    }
    const after = nonSpace(bytes, end)
    this.cuts.push({ start: keyAt, end: bytes[after] === comma ? after + 1 : end, instead: '' })
  }
}

/**
 * Reads ids up to the bracket that closes their list, and returns its place; -1 if there is anything but ids. `isRest`: ids came
 * before `start`.
 */
function idsEnd(bytes: Uint8Array, start: number, list: number[], isRest = false): number {
  let at = nonSpace(bytes, start)
  if (bytes[at] === closeBracket) return at
  if (isRest) {
    if (bytes[at] !== comma) return -1
    at = nonSpace(bytes, at + 1)
  }
  for (;;) {
    const first = at
    let id = 0
    let digit = (bytes[at] ?? 0) - 0x30
    while (digit >= 0 && digit <= 9) {
      id = id * 10 + digit
      at += 1
      digit = (bytes[at] ?? 0) - 0x30
    }
    // Ids are plain digits, without leading zeros, which JSON does not allow.
    if (at === first || at - first > 10 || id > 0x7fff_ffff) return -1
    if (bytes[first] === 0x30 && at - first > 1) throw notWalkable
    list.push(id)
    at = nonSpace(bytes, at)
    if (bytes[at] === closeBracket) return at
    if (bytes[at] !== comma) return -1
    at = nonSpace(bytes, at + 1)
  }
}

/** The largest relative error of a value that `floatAt` computes: three roundings, and a power that may be rounded too. */
const maxError = 2 ** -48
/** Smaller values come near the subnormal 32-bit floats, whose relative distance is larger. */
const smallest = 2 ** -120
const maxDecimals = 38
const powers = Float64Array.from({ length: maxDecimals + 1 }, (_, power) => Number(`1e${power}`))

/**
 * A JSON number as a 32-bit float, exactly `Math.fround(Number(text))`, without making a text: half the time that a list of
 * log-probabilities takes. It is computed in doubles, and taken if all values within the error round to one float. NaN if not,
 * and for exponents and long numbers.
 */
function floatAt(bytes: Uint8Array, start: number, end: number): number {
  const isNegative = bytes[start] === 0x2d
  /** The first nine significant digits, and those after them: both are exact. */
  let high = 0
  let low = 0
  let digits = 0
  let pointAt = end - 1
  for (let at = isNegative ? start + 1 : start; at < end; at += 1) {
    const digit = (bytes[at] as number) - 0x30
    if (digit >= 0 && digit <= 9) {
      // Leading zeros are not significant.
      if (digits === 0 && digit === 0) continue
      if (digits < 9) high = high * 10 + digit
      else low = low * 10 + digit
      digits += 1
    } else if (bytes[at] === 0x2e) pointAt = at
    else return Number.NaN
  }
  const decimals = end - 1 - pointAt
  if (digits > 18 || decimals > maxDecimals) return Number.NaN
  const mantissa = digits > 9 ? high * (powers[digits - 9] as number) + low : high
  const value = mantissa / (powers[decimals] as number)
  const float = Math.fround(value * (1 - maxError))
  const isCertain = value === 0 || (value > smallest && float === Math.fround(value * (1 + maxError)))
  if (!isCertain) return Number.NaN
  return isNegative ? -float : float
}

function isNumber(byte: number | undefined): boolean {
  return byte === 0x2d || isDigit(byte)
}

function spaceStart(bytes: Uint8Array, end: number): number {
  let at = end
  while (at > 0 && (bytes[at - 1] as number) <= 0x20) at -= 1
  return at
}

function bufferOf(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length)
}

function textWithout(cuts: readonly Cut[], bytes: Uint8Array): string {
  const buffer = bufferOf(bytes)
  let text = ''
  let from = 0
  for (const { start, end, instead } of cuts) {
    text += buffer.toString('utf8', from, start) + instead
    from = end
  }
  return text + buffer.toString('utf8', from)
}

/** Token ids in a typed array that grows: they arrive in pieces and leave as one array. */
class GrowingIds {
  #values = new Int32Array(0)
  #length = 0

  /** The memory in use, including room that is not filled yet. */
  get byteLength(): number {
    return this.#values.byteLength
  }

  /** Adds a piece. The first piece is kept without a copy. */
  append(piece: Int32Array<ArrayBuffer>): void {
    const length = this.#length + piece.length
    if (this.#length === 0) {
      this.#values = piece
    } else {
      if (length > this.#values.length) this.#grow(length)
      this.#values.set(piece, this.#length)
    }
    this.#length = length
  }

  view(): Int32Array<ArrayBuffer> {
    return this.#values.subarray(0, this.#length)
  }

  #grow(atLeast: number): void {
    const grown = new Int32Array(Math.max(atLeast, 2 * this.#values.length))
    grown.set(this.#values.subarray(0, this.#length))
    this.#values = grown
  }
}

export function growingIds(): GrowingIds {
  return new GrowingIds()
}
