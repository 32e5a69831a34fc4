import type { Message } from '../../schema/index.ts'
import type { BackendReply, ModelRequest, PartialReply } from '../backend.ts'
import type { EventDraft } from './event-draft.ts'
import type { ResponseHeaders } from './retry-after.ts'
import type { Source } from './source.ts'
import type { EngineName } from '../tokens/token-request.ts'
import type { TokenArrays } from '../tokens/token-scanner.ts'

/** What a dialect must know about the model and the backend it writes to. */
export interface DialectOptions {
  readonly source: Source
  /** The name that the model's replies are recorded under. Sealed reasoning is sent back only to the model that wrote it. */
  readonly modelName: string
  /** What the backend calls the model. */
  readonly upstreamName: string
  /** Whether replies are streamed if the request does not say. */
  readonly stream: boolean
  readonly sendReasoning: boolean
  /** Whether the server is OpenAI itself, which differs from what its imitators accept in a few places. */
  readonly isOpenAi: boolean
  /** Whether the server is Mistral itself, which has reasoning in the content, and refuses it in a field beside. */
  readonly isMistral?: boolean
  /** Decides how tokens are asked for; if the engine is not known, in vLLM's way. */
  readonly engine?: EngineName | undefined
}

/** The headers of an answer, and what is known of its request. */
export interface AnswerContext {
  readonly headers?: ResponseHeaders
  /** The conversation that the answer continues. */
  readonly messages?: readonly Message[]
  /** How many choices were asked for. Default: 1. */
  readonly choices?: number | undefined
}

/** How the answers of a server are read. */
export interface AnswerReader {
  /** Whether token ids are looked for in the bytes of answers, when they were asked for. */
  readonly hasTokens: boolean
  /** Whether each event of a stream repeats those before it: then only the length of one event is bounded, not their sum. */
  readonly repeatsItself?: boolean
  /**
   * Reads a whole answer. `text` is its JSON, from which `tokens` may have been taken out before. Throws a coded error if
   * the answer is broken, unfinished or an error report.
   */
  parse(body: unknown, context: AnswerContext, tokens?: TokenArrays, text?: string): BackendReply
  assemble(context: AnswerContext, wantsTokens: boolean): StreamAssembler
}

/** One way of asking a server for a turn: how the request is written and how the answer is read. */
export interface Dialect extends AnswerReader {
  /** The path below the API's base url. */
  readonly path: string
  render(request: ModelRequest): string
  /** The body for counting tokens only: all that makes the prompt, and nothing about the reply. */
  renderCounted(request: ModelRequest): string
}

/** Puts a streamed answer together, one event at a time. */
export interface StreamAssembler {
  /**
   * Takes the data of one server-sent event. Throws a coded error if the event is broken or an error report. A caller that
   * passes the reply on gives an `event`, which is filled in; without it nothing is made that only a sink needs.
   */
  onEvent(data: string, event?: EventDraft): void
  /** Whether something the model said has arrived. */
  readonly hasOutput: boolean
  /** Whether the backend said how the answer ended. Only then is there a reply. */
  readonly isComplete: boolean
  reply(): BackendReply
  /** The reply so far, if every event was given a draft. Never throws: parts that make no sense yet are left out. */
  partial(): PartialReply
}
