import type { Draft } from '../kit/index.ts'
import {
  type AssistantMessage,
  type FinishReason,
  isJsonObject,
  type Json,
  type JsonObject,
  type Message,
  type OriginalReply,
  type OtherPart,
  type RoutedExperts,
  type TokenRecord,
  type ToolCall,
  type Usage,
  type VersionSpan,
} from '../schema/index.ts'
import type { BackendReply, PartialReply, ReplyDelta } from './backend.ts'
import type { AnswerContext } from './client-side.ts'
import { malformedReply, type Source, truncatedReply } from './errors/reply-errors.ts'
import { readExperts } from './tokens/routed-experts.ts'
import type { TokenArrays } from './tokens/token-scanner.ts'

/** More calls than this in one reply are a broken reply. */
const maxToolCalls = 1024

export interface DraftCall {
  id: string
  name: string
  arguments: string
  /** The text that a custom tool of Chat is called with; undefined for functions. */
  input?: string
  /** The `extra_content` of the call, which its server wants to see again: Gemini's signature of the thought that led to it. */
  signature?: Json
  /** The call's rank among the calls: the server's own number, or the order in which it began. */
  number: number
  isReported: boolean
}

export class ReplyDraft {
  readonly source: Source
  readonly #syntheticIds: SyntheticIds
  content: string | null = null
  reasoning = ''
  /** Whether the server puts the reasoning into the content; our own message has only the text of that. */
  thinksInContent = false
  refusal = ''
  /** The finish reason in the server's word; empty until it came. */
  finish = ''
  stopSequence: string | undefined
  stopReason: string | undefined
  usage: Usage = { calls: 1, input: 0, cachedInput: 0, output: 0, reasoning: 0 }
  readonly tokens: TokenDraft
  #version: string | undefined
  readonly #calls: DraftCall[] = []
  readonly #others: OtherPart[] = []
  /** The reply in its API's own words, if the message has no place for all of it. */
  original: OriginalReply | undefined
  readonly #keepsAborted: boolean

  constructor(source: Source, { headers = {}, messages = [], keepsAborted = false }: AnswerContext = {}) {
    this.source = source
    this.#keepsAborted = keepsAborted
    this.tokens = new TokenDraft(source)
    this.#syntheticIds = new SyntheticIds(messages)
    const version = headers['x-weight-version']
    if (typeof version === 'string') this.#version = version
  }

  get toolCallCount(): number {
    return this.#calls.length
  }

  get hasCustomCalls(): boolean {
    return this.#calls.some(({ input }) => input !== undefined)
  }

  /** The signatures of the function calls, in order; undefined if no call has one. */
  get signatures(): readonly (Json | undefined)[] | undefined {
    if (!this.#calls.some(({ signature }) => signature !== undefined)) return undefined
    return this.#calls.filter(({ input }) => input === undefined).map(({ signature }) => signature)
  }

  addOther(part: OtherPart): void {
    this.#others.push(part)
  }

  toolCall(index: number): DraftCall {
    if (!Number.isInteger(index) || index < 0 || index >= maxToolCalls) {
      throw malformedReply(this.source, `the index ${index} of a tool call is out of range`)
    }
    while (this.#calls.length <= index) {
      this.#calls.push({ id: '', name: '', arguments: '', number: this.#calls.length, isReported: false })
    }
    return this.#calls[index] as DraftCall
  }

  /** Sorts the calls by their numbers, because they may begin in another order. No call may be added after that. */
  orderCalls(): void {
    this.#calls.sort((one, other) => one.number - other.number)
  }

  syntheticId(index: number): string {
    return this.#syntheticIds.at(index)
  }

  add(delta: ReplyDelta): void {
    switch (delta.kind) {
      case 'content':
        this.content = (this.content ?? '') + delta.text
        return
      case 'reasoning':
        this.reasoning += delta.text
        return
      case 'refusal':
        this.refusal += delta.text
        return
      case 'tool-call': {
        const call = this.toolCall(delta.index)
        call.id = delta.id
        call.name = delta.name
        return
      }
      case 'arguments':
        this.toolCall(delta.index).arguments += delta.text
    }
  }

  /** vLLM forks put the version of the weights at the top level, SGLang under `metadata` or, in a choice, `meta_info`. */
  readVersion(body: JsonObject): void {
    const { weight_version: outer, metadata } = body
    const version = outer ?? (isJsonObject(metadata) ? metadata['weight_version'] : undefined)
    if (typeof version === 'string' || typeof version === 'number') this.#version = String(version)
  }

  /** Ends an event: its tokens, which begin at `from`, are of the version of the weights that was read last. */
  endTokens(from: number): void {
    this.tokens.endEvent()
    if (this.#version !== undefined) this.tokens.markVersion(from, this.#version)
  }

  /** The finished reply. Throws if the server did not say how it ended. */
  reply(): BackendReply {
    if (this.finish === '') throw truncatedReply(this.source, 'it has no finish reason')
    const isAborted = this.#keepsAborted && this.finish.toLowerCase() === 'abort'
    const finishReason = isAborted ? 'length' : finishReasonOf(this.finish, this.#calls.length > 0)
    if (finishReason === 'cut') throw truncatedReply(this.source, `the server ended it with "${this.finish}"`)
    for (const [index, { name }] of this.#calls.entries()) {
      if (name === '') throw malformedReply(this.source, `tool call ${index} has no name`)
    }
    const reply: Draft<BackendReply> = { message: this.message(), finishReason, usage: this.usage }
    if (isAborted) reply.isAborted = true
    const tokens = this.tokens.record(this.#version)
    if (tokens) reply.tokens = tokens
    if (this.stopSequence !== undefined) reply.stopSequence = this.stopSequence
    if (this.stopReason !== undefined) reply.stopReason = this.stopReason
    if (this.original) reply.original = this.original
    return reply
  }

  /** The reply so far, without calls whose name has not come and the tokens from the first incomplete event on. */
  partial(): PartialReply {
    const message = this.message(this.#calls.filter(({ name }) => name !== ''))
    const tokens = this.tokens.soundRecord(this.#version)
    return tokens ? { message, tokens } : { message }
  }

  message(calls: readonly DraftCall[] = this.#calls): AssistantMessage {
    const { content, reasoning, refusal } = this
    const functions: ToolCall[] = []
    const others: OtherPart[] = []
    for (const [index, call] of calls.entries()) {
      const { id, name, arguments: written, input } = call
      const named = { id: id || this.syntheticId(index) }
      // Arguments stay the text that the model wrote; the code that runs the tool decides whether they are valid.
      if (input === undefined) functions.push({ ...named, type: 'function', function: { name, arguments: written } })
      // A custom tool takes plain text. Only Chat knows such tools, so the call is in its words.
      else others.push({ type: 'other', api: 'chat', value: { ...named, type: 'custom', custom: { name, input } } })
    }
    others.push(...this.#others)
    return assistantMessage({ content, reasoning, refusal, calls: functions, others })
  }
}

interface AssistantParts {
  readonly content: string | null
  readonly reasoning: string
  readonly refusal: string
  readonly calls: readonly ToolCall[]
  readonly others: readonly OtherPart[]
}

/** A message without empty fields. They are always set in this order, so that equal messages have equal JSON. */
export function assistantMessage({ content, reasoning, refusal, calls, others }: AssistantParts): AssistantMessage {
  const message: Draft<AssistantMessage> = { role: 'assistant', content }
  if (reasoning !== '') message.reasoning_content = reasoning
  if (refusal !== '') message.refusal = refusal
  if (calls.length > 0) message.tool_calls = calls
  if (others.length > 0) message.others = others
  return message
}

/** The finish reasons of servers by what they mean; all others mean `stop`. `cut`: the server itself stopped generating. */
const finishReasons: readonly (readonly [FinishReason | 'cut', readonly string[]])[] = [
  // vLLM says `repetition` when it has detected one: the engine ended the reply, the model would have gone on.
  [
    'length',
    ['length', 'max_tokens', 'max_output_tokens', 'model_length', 'model_context_window_exceeded', 'repetition'],
  ],
  ['tool_calls', ['tool_calls', 'tool_use', 'function_call']],
  ['content_filter', ['content_filter', 'safety', 'sensitive', 'refusal']],
  // The last two are of DeepSeek, which has no machine left for the request, and of Z.ai.
  ['cut', ['abort', 'cancelled', 'error', 'insufficient_system_resource', 'network_error']],
]

/** Several servers say `stop` of calls when the tool choice was forced. */
export function finishReasonOf(said: string, hasToolCalls: boolean): FinishReason | 'cut' {
  const [meaning] = finishReasons.find(([, words]) => words.includes(said.toLowerCase())) ?? []
  return meaning ?? (hasToolCalls ? 'tool_calls' : 'stop')
}

/** The parts of a message that a model writes, in the order in which they are written when the message is sent again. */
const messageParts = ['thought', 'text', 'call'] as const

export type MessagePart = (typeof messageParts)[number]

/** Whether our own message can hold all pieces of a reply and their order. `partOf`: the part that a piece belongs to, if any. */
export function isLossless(
  pieces: readonly JsonObject[],
  partOf: (piece: JsonObject) => MessagePart | undefined,
): boolean {
  let last = -1
  for (const piece of pieces) {
    const part = partOf(piece)
    if (part === undefined) return false
    const order = messageParts.indexOf(part)
    // A message may have several calls; a second thought or text would be merged with the first.
    if (order < last || (order === last && part !== 'call')) return false
    last = order
  }
  return true
}

export function tokenCount(value: unknown): number {
  return typeof value === 'number' && value > 0 && Number.isFinite(value) ? Math.floor(value) : 0
}

export function textOrUndefined(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined
}

/** Ids with more digits are not ours. */
const syntheticId = /^call_(\d{1,15})$/

/**
 * Ids for calls that came without one. They are numbered on from the ids of the conversation, so that none occurs twice.
 * They depend on nothing else: a client may send such a call back without an id, and reading it must give the same id again.
 */
export class SyntheticIds {
  readonly #messages: readonly Message[]
  /** How many of the messages were looked through. None are until an id is needed. */
  #known = 0
  #next = 0

  /** `messages` may grow afterwards. */
  constructor(messages: readonly Message[]) {
    this.#messages = messages
  }

  /** The id of the call at this place, counted from the end of the messages. */
  at(part: number): string {
    for (; this.#known < this.#messages.length; this.#known += 1) {
      const message = this.#messages[this.#known]
      for (const { id } of (message?.role === 'assistant' && message.tool_calls) || []) {
        const [, number] = syntheticId.exec(id) ?? []
        if (number !== undefined) this.#next = Math.max(this.#next, Number(number) + 1)
      }
    }
    return `call_${this.#next + part}`
  }
}

export function isSynthetic(id: string): boolean {
  return syntheticId.test(id)
}

/** vLLM writes this number for a log-probability that it lacks, and for each one below it. So it says nothing. */
const saysNothing = -9999

function known(logprob: number): number {
  return logprob === saysNothing ? Number.NaN : logprob
}

class TokenDraft {
  readonly #source: Source
  #promptIds: Int32Array | undefined
  readonly #ids: number[] = []
  readonly #logprobs: number[] = []
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
      for (const id of ids) this.#ids.push(id)
    }
    for (const logprob of logprobs ?? []) this.#logprobs.push(known(logprob))
    if (routedExperts) this.#experts = routedExperts
  }

  setPromptIds(values: readonly unknown[]): void {
    this.#promptIds = Int32Array.from(values, (value, index) => this.#id(value, index))
  }

  addIds(values: readonly unknown[]): void {
    this.#hasIds = true
    for (const value of values) this.#ids.push(this.#id(value, this.#ids.length))
  }

  /** Adds the entries of OpenAI's `logprobs.content`. */
  addLogprobs(entries: readonly unknown[]): void {
    for (const entry of entries) {
      const { logprob } = isJsonObject(entry) ? (entry as { logprob?: unknown }) : {}
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
    if (!experts) throw malformedReply(this.#source, 'the format of its routed experts is unknown')
    this.#experts = experts
  }

  /** The sampled tokens, if the server sent them. `version` is for tokens that came without one. */
  record(version: string | undefined): TokenRecord | undefined {
    if (!this.#hasIds) return undefined
    const ids = this.#ids.length
    const logprobs = this.#logprobs.length
    if (logprobs > 0 && logprobs !== ids) {
      throw malformedReply(this.#source, `${ids} token ids came with ${logprobs} log-probabilities`)
    }
    if (this.#badLogprob !== -1) {
      throw malformedReply(this.#source, `log-probability ${this.#badLogprob} is not a number`)
    }
    return { ...this.#recordOf({ ids, logprobs }, version), ...(this.#experts && { routedExperts: this.#experts }) }
  }

  /** The tokens of an incomplete reply, up to the event that made them inconsistent. */
  soundRecord(version: string | undefined): TokenRecord | undefined {
    if (this.#isSound) return this.record(version)
    // The experts are left out: it is not known any more which tokens they belong to.
    return this.#sound.ids === 0 ? undefined : this.#recordOf(this.#sound, version)
  }

  /** The first tokens. There are no log-probabilities if none of them is known. */
  #recordOf(count: { readonly ids: number; readonly logprobs: number }, version: string | undefined): TokenRecord {
    const spans = this.#spans.filter(({ from }) => from < count.ids)
    const first = spans[0]?.version ?? version
    const logprobs = new Float32Array(this.#logprobs.slice(0, count.logprobs))
    return {
      ...(this.#promptIds && { promptIds: this.#promptIds }),
      ids: new Int32Array(this.#ids.slice(0, count.ids)),
      logprobs: logprobs.every(Number.isNaN) ? new Float32Array() : logprobs,
      ...(first !== undefined && { version: first }),
      ...(spans.length > 1 && { versionSpans: spans }),
    }
  }

  /** Null is allowed and kept as NaN: servers write it for values that they lack or that JSON cannot hold. */
  #addLogprob(value: unknown): void {
    if (typeof value !== 'number' && value !== null && this.#badLogprob === -1) this.#badLogprob = this.#logprobs.length
    this.#logprobs.push(typeof value === 'number' ? known(value) : Number.NaN)
  }

  #id(value: unknown, index: number): number {
    if (typeof value === 'number' && value >= 0 && (value | 0) === value) return value
    throw malformedReply(this.#source, `token id ${index} is not a valid token id`)
  }
}
