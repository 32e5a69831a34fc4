import { isUtf8 } from 'node:buffer'
import type { RoutedExperts } from '../../schema/index.ts'
import { scannedIds, type GrowingArray } from './_growing-array.ts'
import {
  closeBracket,
  comma,
  elementsEnd,
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
import type { KnownPrompt } from './_known-prompt.ts'
import { readLogprobs } from './_read-logprobs.ts'
import { readExperts, scanExperts } from './_routed-experts.ts'

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

/** The prompts that are known already. */
export interface PromptReader {
  /** Finds the known prompt that the ids at `at` begin with. */
  find(bytes: Uint8Array, at: number): { readonly prompt: KnownPrompt; readonly end: number } | undefined
  /** Adds a prompt. `text` is everything between the brackets, and stays the caller's. */
  add(text: Uint8Array, ids: Int32Array<ArrayBuffer>): void
}

/** Shorter replies are not scanned, because it gains little: 2 KB take 8 µs instead of the 11 of `JSON.parse`. */
export const worthScanningBytes = 4 * 1024

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

/** Walks over one reply. */
class TokenScan {
  readonly tokens: TokenArrays = {}
  /** What was taken out, in order. */
  readonly cuts: Cut[] = []
  readonly #bytes: Uint8Array
  readonly #prompts: PromptReader | undefined
  /** The keys among `keys` that have come. */
  readonly #seen: Uint8Array[] = []

  constructor(bytes: Uint8Array, prompts: PromptReader | undefined) {
    this.#bytes = bytes
    this.#prompts = prompts
  }

  reply(): void {
    const bytes = this.#bytes
    const start = spaceEnd(bytes, 0)
    const end = bytes[start] === openBrace ? membersEnd(bytes, start, this.#replyMember) : valueEnd(bytes, start)
    if (spaceEnd(bytes, end) < bytes.length) throw notWalkable
  }

  readonly #replyMember = (keyAt: number, at: number): number => {
    const bytes = this.#bytes
    requirePlainKey(bytes, keyAt, at)
    if (this.#isKey(keyAt, keys.choices)) {
      if (bytes[at] === openBracket) return elementsEnd(bytes, at, this.#choice)
    } else if (this.#isKey(keyAt, keys.promptIds)) {
      if (bytes[at] === openBracket) return this.#promptIds(keyAt, at)
    }
    return valueEnd(bytes, at)
  }

  /** Only the first choice is read: only one is ever asked for. */
  readonly #choice = (at: number, index: number): number => {
    const bytes = this.#bytes
    if (index === 0 && bytes[at] === openBrace) return membersEnd(bytes, at, this.#choiceMember)
    return valueEnd(bytes, at)
  }

  readonly #choiceMember = (keyAt: number, at: number): number => {
    const bytes = this.#bytes
    requirePlainKey(bytes, keyAt, at)
    if (this.#isKey(keyAt, keys.ids)) {
      if (bytes[at] === openBracket) return this.#ids(keyAt, at)
    } else if (this.#isKey(keyAt, keys.logprobs)) {
      if (bytes[at] === openBrace) return this.#logprobs(at)
    } else if (this.#isKey(keyAt, keys.experts)) {
      return this.#experts(keyAt, at)
    } else if (this.#isKey(keyAt, keys.extension) || this.#isKey(keyAt, keys.metaInfo)) {
      if (bytes[at] === openBrace) return membersEnd(bytes, at, this.#extensionMember)
    }
    return valueEnd(bytes, at)
  }

  readonly #logprobsMember = (keyAt: number, at: number): number => {
    const bytes = this.#bytes
    requirePlainKey(bytes, keyAt, at)
    if (this.#isKey(keyAt, keys.content) && bytes[at] === openBracket) return this.#logprobList(keyAt, at)
    return valueEnd(bytes, at)
  }

  readonly #extensionMember = (keyAt: number, at: number): number => {
    const bytes = this.#bytes
    requirePlainKey(bytes, keyAt, at)
    return this.#isKey(keyAt, keys.experts) ? this.#experts(keyAt, at) : valueEnd(bytes, at)
  }

  /** Whether this is the key. Throws if it comes twice: the last one counts then, and the one before would stay in the rest. */
  #isKey(at: number, key: Uint8Array): boolean {
    if (!isKey(this.#bytes, at, key)) return false
    if (this.#seen.includes(key)) throw notWalkable
    this.#seen.push(key)
    return true
  }

  #promptIds(keyAt: number, start: number): number {
    const bytes = this.#bytes
    const first = nonSpace(bytes, start + 1)
    const known = this.#prompts?.find(bytes, first)
    const list = scannedIds()
    const end = known ? restEnd(bytes, known.end, list) : idsEnd(bytes, first, list)
    if (end === -1) return valueEnd(bytes, start)
    if (known) {
      this.tokens.promptIds = known.prompt.extend(bytes.subarray(known.end, end), list.view())
    } else {
      const ids = list.whole()
      this.tokens.promptIds = ids
      this.#prompts?.add(bytes.subarray(first, end), ids)
    }
    this.#cutMember(keyAt, end + 1)
    return end + 1
  }

  #ids(keyAt: number, start: number): number {
    const bytes = this.#bytes
    const list = scannedIds()
    const end = idsEnd(bytes, nonSpace(bytes, start + 1), list)
    if (end === -1) return valueEnd(bytes, start)
    this.tokens.ids = list.whole()
    this.#cutMember(keyAt, end + 1)
    return end + 1
  }

  #logprobs(start: number): number {
    const bytes = this.#bytes
    const end = membersEnd(bytes, start, this.#logprobsMember)
    const cut = this.cuts.at(-1)
    const isEmptied = cut && nonSpace(bytes, start + 1) === cut.start && nonSpace(bytes, cut.end) === end - 1
    // The API has the field in every choice: null says that there are none.
    if (isEmptied) this.cuts[this.cuts.length - 1] = { start, end, instead: 'null' }
    return end
  }

  #logprobList(keyAt: number, start: number): number {
    const { end, values } = readLogprobs(this.#bytes, start)
    if (values) {
      this.tokens.logprobs = values
      this.#cutMember(keyAt, end)
    }
    return end
  }

  #experts(keyAt: number, start: number): number {
    const bytes = this.#bytes
    const end = valueEnd(bytes, start)
    const experts =
      bytes[start] === openBracket
        ? scanExperts(bytes, start)
        : readExperts(JSON.parse(textWithout([], bytes.subarray(start, end))))
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

/** Reads ids up to the bracket that closes their list, and returns its place; -1 if there is anything but ids. */
function idsEnd(bytes: Uint8Array, start: number, list: GrowingArray<Int32Array<ArrayBuffer>>): number {
  return bytes[start] === closeBracket ? start : numbersEnd(bytes, start, list)
}

/** Reads the ids that follow a number, as `idsEnd` does. */
function restEnd(bytes: Uint8Array, start: number, list: GrowingArray<Int32Array<ArrayBuffer>>): number {
  const at = nonSpace(bytes, start)
  if (bytes[at] === comma) return numbersEnd(bytes, nonSpace(bytes, at + 1), list)
  return bytes[at] === closeBracket ? at : -1
}

/** Reads at least one id, as `idsEnd` does. */
function numbersEnd(bytes: Uint8Array, start: number, list: GrowingArray<Int32Array<ArrayBuffer>>): number {
  let at = start
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

/** The first place of the white space that ends here. */
function spaceStart(bytes: Uint8Array, end: number): number {
  let at = end
  while (at > 0 && (bytes[at - 1] as number) <= 0x20) at -= 1
  return at
}

function textWithout(cuts: readonly Cut[], bytes: Uint8Array): string {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length)
  let text = ''
  let from = 0
  for (const { start, end, instead } of cuts) {
    text += buffer.toString('utf8', from, start) + instead
    from = end
  }
  return text + buffer.toString('utf8', from)
}
