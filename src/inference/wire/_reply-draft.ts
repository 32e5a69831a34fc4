import type { Draft } from '../../kit/index.ts'
import type {
  AssistantMessage,
  Json,
  JsonObject,
  OriginalReply,
  OtherPart,
  ToolCall,
  Usage,
} from '../../schema/index.ts'
import type { BackendReply, PartialReply, ReplyDelta } from '../backend.ts'
import { malformedReply, truncatedReply } from './broken-reply.ts'
import { finishReasonOf } from './_finish-reason.ts'
import { TokenDraft } from '../tokens/token-draft.ts'
import { isObject } from './foreign-json.ts'
import type { AnswerContext } from './dialect.ts'
import { MadeUpIds } from './made-up-ids.ts'
import type { Source } from './source.ts'

/** More calls than this in one reply are a broken reply. */
const maxToolCalls = 1024

export interface DraftCall {
  id: string
  name: string
  arguments: string
  /** The text that a custom tool of Chat is called with; undefined for functions. */
  input?: string
  /** The `extra_content` of the call, which its server wants to see again: Gemini's signature of the thought that led to it. */
  seal?: Json
  /** The call's rank among the calls: the server's own number, or the order in which it began. */
  number: number
  /** Whether a sink has been told of the call. */
  isTold: boolean
}

interface VersionWire {
  weight_version?: unknown
  metadata?: unknown
}

/** A reply while it is being read, whole or in pieces, in any dialect. */
export class ReplyDraft {
  readonly source: Source
  readonly #madeUpIds: MadeUpIds
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
  #tokens: TokenDraft | undefined
  #version: string | undefined
  readonly #calls: DraftCall[] = []
  #others: OtherPart[] | undefined
  /** The reply in its API's own words, if the message has no place for all of it. */
  original: OriginalReply | undefined

  constructor(source: Source, { headers = {}, messages = [] }: AnswerContext = {}) {
    this.source = source
    this.#madeUpIds = new MadeUpIds(messages)
    const version = headers['x-weight-version']
    if (typeof version === 'string') this.#version = version
  }

  /** Made with the first tokens, because most replies have none. */
  get tokens(): TokenDraft {
    this.#tokens ??= new TokenDraft(this.source)
    return this.#tokens
  }

  get hasToolCalls(): boolean {
    return this.#calls.length > 0
  }

  get toolCallCount(): number {
    return this.#calls.length
  }

  get hasCustomCalls(): boolean {
    return this.#calls.some(({ input }) => input !== undefined)
  }

  /** The seals of the function calls, in order; undefined if no call has one. */
  get seals(): readonly (Json | undefined)[] | undefined {
    if (!this.#calls.some(({ seal }) => seal !== undefined)) return undefined
    return this.#calls.filter(({ input }) => input === undefined).map(({ seal }) => seal)
  }

  /** Adds a part that only its own API can express. */
  addOther(part: OtherPart): void {
    this.#others ??= []
    this.#others.push(part)
  }

  /** The tool call at this place, made if it is new. */
  toolCall(index: number): DraftCall {
    if (!Number.isInteger(index) || index < 0 || index >= maxToolCalls) {
      throw malformedReply(this.source, `it has a tool call number ${index}`)
    }
    while (this.#calls.length <= index) {
      this.#calls.push({ id: '', name: '', arguments: '', number: this.#calls.length, isTold: false })
    }
    return this.#calls[index] as DraftCall
  }

  /** Sorts the calls by their numbers, because they may begin in another order. No call may be added after that. */
  orderCalls(): void {
    this.#calls.sort((one, other) => one.number - other.number)
  }

  /** The id of the tool call at this place if the server gives it none. */
  madeUpId(index: number): string {
    return this.#madeUpIds.at(index)
  }

  /** Adds a piece of a stream. */
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
  readVersion(body: object): void {
    const wire = body as VersionWire
    const inner: VersionWire | undefined = isObject(wire.metadata) ? wire.metadata : undefined
    const version = wire.weight_version ?? inner?.weight_version
    if (typeof version === 'string' || typeof version === 'number') this.#version = String(version)
  }

  /** How many tokens were sampled so far. */
  get tokenCount(): number {
    return this.#tokens?.length ?? 0
  }

  /** Ends an event: its tokens, which begin at `from`, are of the version of the weights that was read last. */
  endTokens(from: number): void {
    this.#tokens?.endEvent()
    if (this.#tokens && this.#version !== undefined) this.#tokens.markVersion(from, this.#version)
  }

  /** The finished reply. Throws if the server did not say how it ended. */
  reply(): BackendReply {
    if (this.finish === '') throw truncatedReply(this.source, 'it has no finish reason')
    const finishReason = finishReasonOf(this.finish, this.hasToolCalls)
    if (finishReason === 'cut') throw truncatedReply(this.source, `the server ended it with "${this.finish}"`)
    for (const [index, { name }] of this.#calls.entries()) {
      if (name === '') throw malformedReply(this.source, `tool call ${index} has no name`)
    }
    const reply: Draft<BackendReply> = { message: this.message(), finishReason, usage: this.usage }
    const tokens = this.#tokens?.record(this.#version)
    if (tokens) reply.tokens = tokens
    if (this.stopSequence !== undefined) reply.stopSequence = this.stopSequence
    if (this.stopReason !== undefined) reply.stopReason = this.stopReason
    if (this.original) reply.original = this.original
    return reply
  }

  /**
   * The reply so far: without calls whose name has not come, and without the tokens of the first incomplete event and all
   * after it.
   */
  partial(): PartialReply {
    const message = this.message(this.#calls.filter(({ name }) => name !== ''))
    const tokens = this.#tokens?.soundRecord(this.#version)
    return tokens ? { message, tokens } : { message }
  }

  message(calls: readonly DraftCall[] = this.#calls): AssistantMessage {
    // The fields are always set in this order, so that equal messages have equal JSON.
    const message: Draft<AssistantMessage> = {
      role: 'assistant',
      content: this.content,
    }
    if (this.reasoning !== '') message.reasoning_content = this.reasoning
    if (this.refusal !== '') message.refusal = this.refusal
    if (calls.length > 0) this.#addCalls(message, calls)
    if (this.#others) message.others = [...(message.others ?? []), ...this.#others]
    return message
  }

  #addCalls(message: Draft<AssistantMessage>, calls: readonly DraftCall[]): void {
    const functions: ToolCall[] = []
    const others: OtherPart[] = []
    for (const [index, call] of calls.entries()) {
      const id = call.id || this.madeUpId(index)
      if (call.input === undefined) functions.push(toolCall(call, id))
      else others.push({ type: 'other', api: 'chat', value: customCall(call, call.input, id) })
    }
    if (functions.length > 0) message.tool_calls = functions
    if (others.length > 0) message.others = others
  }
}

/** A call of a custom tool, which takes plain text. Only Chat knows such tools, so the call is in its words. */
function customCall({ name }: DraftCall, input: string, id: string): JsonObject {
  return { id, type: 'custom', custom: { name, input } }
}

function toolCall({ name, arguments: written }: DraftCall, id: string): ToolCall {
  // Arguments stay the text that the model wrote; the code that runs the tool decides whether they are valid.
  return { id, type: 'function', function: { name, arguments: written } }
}
