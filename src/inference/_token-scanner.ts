import type { RoutedExperts } from '../schema/index.ts'
import { Decimal } from './_decimal.ts'
import { scannedIds, scannedLogprobs } from './_growing-array.ts'
import {
  closeBrace,
  closeBracket,
  comma,
  elementsEnd,
  isKey,
  keyBytes,
  keyEnd,
  membersEnd,
  nonSpace,
  notWalkable,
  openBrace,
  openBracket,
  spaceEnd,
  valueEnd,
} from './_json-bytes.ts'
import { readExperts, scanExperts } from './_routed-experts.ts'

/** The long lists of a reply, or of one event of a stream. */
export interface TokenArrays {
  promptIds?: Int32Array<ArrayBuffer>
  ids?: Int32Array<ArrayBuffer>
  logprobs?: Float32Array<ArrayBuffer>
  routedExperts?: RoutedExperts
}

export interface ScannedReply {
  readonly tokens: TokenArrays
  /** The JSON without what was taken out of it: there it says `null`. */
  readonly rest: string
}

/** Below it `JSON.parse` is as fast, collecting its garbage included: measured, it takes 10 µs for 2 KB and 58 for 11 KB, and this 12 and 39. */
export const worthScanningBytes = 4 * 1024

/**
 * Takes the long lists out of a Chat Completions reply, straight from its bytes into typed arrays, and leaves a document
 * that is small. It takes only what is written the usual way and in its place. Anything else stays in the document, for
 * whoever reads that to take or to refuse; and bytes that are no JSON stay as they are.
 */
export function scanReply(bytes: Uint8Array): ScannedReply {
  const scan = new TokenScan(bytes)
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
  /** Where SGLang keeps what OpenAI's API has no place for, under its newer and its older name. */
  extension: keyBytes('sgl_ext'),
  metaInfo: keyBytes('meta_info'),
}

/** Of a key that comes twice the last counts, as in `JSON.parse`; so each time the list is forgotten that came before. */
class TokenScan {
  readonly tokens: TokenArrays = {}
  /** Starts and ends, in turn, of what was taken out. */
  readonly cuts: number[] = []
  readonly #bytes: Uint8Array

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes
  }

  reply(): void {
    const bytes = this.#bytes
    const start = spaceEnd(bytes, 0)
    const end = bytes[start] === openBrace ? membersEnd(bytes, start, this.#replyMember) : valueEnd(bytes, start)
    if (spaceEnd(bytes, end) < bytes.length) throw notWalkable
  }

  readonly #replyMember = (keyAt: number, at: number): number => {
    const bytes = this.#bytes
    if (isKey(bytes, keyAt, keys.choices)) {
      delete this.tokens.ids
      delete this.tokens.logprobs
      delete this.tokens.routedExperts
      if (bytes[at] === openBracket) return elementsEnd(bytes, at, this.#choice)
    } else if (isKey(bytes, keyAt, keys.promptIds)) {
      delete this.tokens.promptIds
      if (bytes[at] === openBracket) return this.#ids('promptIds', at)
    }
    return valueEnd(bytes, at)
  }

  /** Only the first choice is ever read, and only one is asked for. */
  readonly #choice = (at: number, index: number): number => {
    const bytes = this.#bytes
    if (index === 0 && bytes[at] === openBrace) return membersEnd(bytes, at, this.#choiceMember)
    return valueEnd(bytes, at)
  }

  readonly #choiceMember = (keyAt: number, at: number): number => {
    const bytes = this.#bytes
    if (isKey(bytes, keyAt, keys.ids)) {
      delete this.tokens.ids
      if (bytes[at] === openBracket) return this.#ids('ids', at)
    } else if (isKey(bytes, keyAt, keys.logprobs)) {
      delete this.tokens.logprobs
      if (bytes[at] === openBrace) return membersEnd(bytes, at, this.#logprobsMember)
    } else if (isKey(bytes, keyAt, keys.experts)) {
      return this.#experts(at)
    } else if (isKey(bytes, keyAt, keys.extension) || isKey(bytes, keyAt, keys.metaInfo)) {
      if (bytes[at] === openBrace) return membersEnd(bytes, at, this.#extensionMember)
    }
    return valueEnd(bytes, at)
  }

  readonly #logprobsMember = (keyAt: number, at: number): number => {
    if (isKey(this.#bytes, keyAt, keys.content)) {
      delete this.tokens.logprobs
      if (this.#bytes[at] === openBracket) return this.#logprobs(at)
    }
    return valueEnd(this.#bytes, at)
  }

  readonly #extensionMember = (keyAt: number, at: number): number =>
    isKey(this.#bytes, keyAt, keys.experts) ? this.#experts(at) : valueEnd(this.#bytes, at)

  #ids(name: 'promptIds' | 'ids', start: number): number {
    const bytes = this.#bytes
    const list = scannedIds()
    let at = nonSpace(bytes, start + 1)
    let isOpen = bytes[at] !== closeBracket
    while (isOpen) {
      const first = at
      let id = 0
      let digit = (bytes[at] ?? 0) - 0x30
      while (digit >= 0 && digit <= 9) {
        id = id * 10 + digit
        at += 1
        digit = (bytes[at] ?? 0) - 0x30
      }
      // Nothing but plain digits; without zeros in front, which JSON does not allow.
      if (at === first || at - first > 10 || id > 0x7fff_ffff) return valueEnd(bytes, start)
      if (bytes[first] === 0x30 && at - first > 1) throw notWalkable
      list.push(id)
      at = nonSpace(bytes, at)
      isOpen = bytes[at] === comma
      if (isOpen) at = nonSpace(bytes, at + 1)
      else if (bytes[at] !== closeBracket) return valueEnd(bytes, start)
    }
    this.tokens[name] = list.whole()
    this.cuts.push(start, at + 1)
    return at + 1
  }

  #logprobs(start: number): number {
    const bytes = this.#bytes
    const list = scannedLogprobs()
    const decimal = new Decimal()
    let areNumbers = true
    const end = elementsEnd(bytes, start, (entry) => {
      if (bytes[entry] !== openBrace) {
        areNumbers = false
        return valueEnd(bytes, entry)
      }
      let isNumber = false
      // The members, without a call for each: there are thousands of entries.
      let at = nonSpace(bytes, entry + 1)
      let isOpen = bytes[at] !== closeBrace
      while (isOpen) {
        const isLogprob = isKey(bytes, at, keys.logprob)
        at = nonSpace(bytes, keyEnd(bytes, at))
        const numberEnd = isLogprob ? decimal.read(bytes, at) : -1
        if (isLogprob) isNumber = numberEnd !== -1
        at = nonSpace(bytes, numberEnd === -1 ? valueEnd(bytes, at) : numberEnd)
        isOpen = bytes[at] === comma
        if (isOpen) at = nonSpace(bytes, at + 1)
        else if (bytes[at] !== closeBrace) throw notWalkable
      }
      if (isNumber) list.push(decimal.value)
      else areNumbers = false
      return at + 1
    })
    if (areNumbers) {
      this.tokens.logprobs = list.whole()
      this.cuts.push(start, end)
    }
    return end
  }

  #experts(start: number): number {
    delete this.tokens.routedExperts
    const bytes = this.#bytes
    const end = valueEnd(bytes, start)
    const experts =
      bytes[start] === openBracket
        ? scanExperts(bytes, start)
        : readExperts(JSON.parse(textWithout([], bytes.subarray(start, end))))
    if (experts) {
      this.tokens.routedExperts = experts
      this.cuts.push(start, end)
    }
    return end
  }
}

function textWithout(cuts: readonly number[], bytes: Uint8Array): string {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length)
  let text = ''
  let start = 0
  for (let index = 0; index < cuts.length; index += 2) {
    text += `${buffer.toString('utf8', start, cuts[index])}null`
    start = cuts[index + 1] as number
  }
  return text + buffer.toString('utf8', start)
}
