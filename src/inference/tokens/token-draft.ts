import type { RoutedExperts, TokenRecord, VersionSpan } from '../../schema/index.ts'
import { malformedReply } from '../wire/broken-reply.ts'
import { growingIds, growingLogprobs } from './_growing-array.ts'
import { readExperts } from './_routed-experts.ts'
import type { TokenArrays } from './token-scanner.ts'
import { isObject } from '../wire/foreign-json.ts'
import type { Source } from '../wire/source.ts'

/** The tokens of a reply while it is being read: typed arrays from a scan, and short lists from a document. */
export class TokenDraft {
  readonly #source: Source
  #promptIds: Int32Array | undefined
  readonly #ids = growingIds()
  readonly #logprobs = growingLogprobs()
  #hasIds = false
  /** The place of the first invalid log-probability: it matters only if there are ids. */
  #badLogprob = -1
  #experts: RoutedExperts | undefined
  /** One span each time the version changes; nearly always one in all. */
  readonly #spans: VersionSpan[] = []
  /** How many ids and log-probabilities there were when they last matched. */
  #sound = { ids: 0, logprobs: 0 }

  constructor(source: Source) {
    this.#source = source
  }

  get length(): number {
    return this.#ids.length
  }

  /** Called when an event was read to its end. */
  endEvent(): void {
    if (this.#isSound) this.#sound = { ids: this.#ids.length, logprobs: this.#logprobs.length }
  }

  /** Whether the tokens so far are consistent: every id has a log-probability, or none has. */
  get #isSound(): boolean {
    const count = this.#logprobs.length
    return this.#badLogprob === -1 && (count === 0 || count === this.#ids.length)
  }

  add({ promptIds, ids, logprobs, routedExperts }: TokenArrays): void {
    if (promptIds) this.#promptIds = promptIds
    if (ids) {
      this.#hasIds = true
      this.#ids.append(ids)
    }
    if (logprobs) this.#logprobs.append(logprobs)
    if (routedExperts) this.#experts = routedExperts
  }

  setPromptIds(values: readonly unknown[]): void {
    const ids = growingIds()
    for (const [index, value] of values.entries()) ids.push(this.#id(value, index))
    this.#promptIds = ids.whole()
  }

  addIds(values: readonly unknown[]): void {
    this.#hasIds = true
    for (const value of values) this.#ids.push(this.#id(value, this.#ids.length))
  }

  /** Adds the entries of OpenAI's `logprobs.content`. */
  addLogprobs(entries: readonly unknown[]): void {
    for (const entry of entries) {
      const { logprob } = isObject(entry) ? (entry as { logprob?: unknown }) : {}
      this.#addLogprob(logprob)
    }
  }

  /** Adds the entries of SGLang's `output_token_logprobs`: `[logprob, id, text]`. */
  addPairs(pairs: readonly unknown[]): void {
    this.#hasIds = true
    for (const pair of pairs) {
      const [logprob, id]: readonly unknown[] = Array.isArray(pair) ? pair : []
      this.#ids.push(this.#id(id, this.#ids.length))
      this.#addLogprob(logprob)
    }
  }

  /** Marks the tokens from `from` on, if there are any, as sampled with this version of the weights. */
  markVersion(from: number, version: string): void {
    if (from >= this.#ids.length || this.#spans.at(-1)?.version === version) return
    // Tokens that came before any version are counted to the first version.
    this.#spans.push({ from: this.#spans.length === 0 ? 0 : from, version })
  }

  setExperts(value: unknown): void {
    const experts = readExperts(value)
    if (!experts) throw malformedReply(this.#source, 'its routed experts are in no form that is known')
    this.#experts = experts
  }

  /** The sampled tokens, if the server sent them. `version` is for tokens that came without one. */
  record(version: string | undefined): TokenRecord | undefined {
    if (!this.#hasIds) return undefined
    const first = this.#spans[0]?.version ?? version
    const ids = this.#ids.whole()
    const logprobs = this.#logprobs.whole()
    if (logprobs.length > 0 && logprobs.length !== ids.length) {
      throw malformedReply(this.#source, `${ids.length} token ids came with ${logprobs.length} log-probabilities`)
    }
    if (this.#badLogprob !== -1) {
      throw malformedReply(this.#source, `log-probability ${this.#badLogprob} is no number`)
    }
    return {
      ...(this.#promptIds && { promptIds: this.#promptIds }),
      ids,
      logprobs: unlessUnknown(logprobs),
      ...(first !== undefined && { version: first }),
      ...(this.#spans.length > 1 && { versionSpans: this.#spans }),
      ...(this.#experts && { routedExperts: this.#experts }),
    }
  }

  /**
   * The tokens of an incomplete reply: all of them if they are consistent, else those before the event that made them
   * inconsistent.
   */
  soundRecord(version: string | undefined): TokenRecord | undefined {
    if (this.#isSound) return this.record(version)
    const { ids, logprobs } = this.#sound
    if (ids === 0) return undefined
    const spans = this.#spans.filter(({ from }) => from < ids)
    const first = spans[0]?.version ?? version
    // The experts are left out: it is not known any more which tokens they belong to.
    return {
      ...(this.#promptIds && { promptIds: this.#promptIds }),
      ids: this.#ids.whole().slice(0, ids),
      logprobs: unlessUnknown(this.#logprobs.whole().slice(0, logprobs)),
      ...(first !== undefined && { version: first }),
      ...(spans.length > 1 && { versionSpans: spans }),
    }
  }

  /**
   * Adds a log-probability. Null is allowed and kept as NaN: servers write it for values that they lack or that JSON cannot
   * hold.
   */
  #addLogprob(value: unknown): void {
    if (typeof value !== 'number' && value !== null && this.#badLogprob === -1) this.#badLogprob = this.#logprobs.length
    this.#logprobs.push(typeof value === 'number' ? value : Number.NaN)
  }

  #id(value: unknown, index: number): number {
    if (typeof value === 'number' && value >= 0 && (value | 0) === value) return value
    throw malformedReply(this.#source, `token id ${index} is no token id`)
  }
}

/** No log-probabilities at all if none of them is known. */
function unlessUnknown(logprobs: Float32Array): Float32Array {
  return logprobs.every(Number.isNaN) ? new Float32Array() : logprobs
}
