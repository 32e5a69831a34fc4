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
  /** What its replies are recorded under: what it has sealed goes back to no other. */
  readonly modelName: string
  /** What the backend calls the model. */
  readonly upstreamName: string
  /** Whether replies are asked for in pieces, where a request does not say. */
  readonly stream: boolean
  readonly sendReasoning: boolean
  /** OpenAI's own API differs from what its imitators accept in a few places. */
  readonly isOpenAi: boolean
  /** Mistral's own API has reasoning in the content, and refuses it beside. */
  readonly isMistral?: boolean
  /** Decides how tokens are asked for; vLLM's way if it is not known. */
  readonly engine?: EngineName | undefined
}

/** What an answer comes with, and what it answers. */
export interface AnswerContext {
  readonly headers?: ResponseHeaders
  /** The conversation that it goes on with. */
  readonly messages?: readonly Message[]
}

/** How the answers of a server are read. */
export interface AnswerReader {
  /** Whether token ids are looked for in the bytes of answers, when they were asked for. */
  readonly hasTokens: boolean
  /** Each event of a stream repeats those before it, so that their sum says nothing: only the length of one is bounded. */
  readonly repeatsItself?: boolean
  /**
   * Reads a whole answer, from whose JSON `tokens` may have been taken out before; `text` is that JSON. Throws a coded
   * error for one that is broken, unfinished or an error report.
   */
  parse(body: unknown, context: AnswerContext, tokens?: TokenArrays, text?: string): BackendReply
  assemble(context: AnswerContext, wantsTokens: boolean): StreamAssembler
}

/** One way of asking a server for a turn: how the request is written and how the answer is read. */
export interface Dialect extends AnswerReader {
  /** Below the API's base url. */
  readonly path: string
  render(request: ModelRequest): string
  /** The same for whoever only counts its tokens: what makes the prompt, and nothing about the reply. */
  renderCounted(request: ModelRequest): string
}

/** Puts a streamed answer together, one event at a time. */
export interface StreamAssembler {
  /**
   * The data of one server-sent event. Throws a coded error for one that is broken or an error report. Somebody who passes
   * the reply on gives an `event` along, which is then filled in; without it nothing is made that only a sink needs.
   */
  onEvent(data: string, event?: EventDraft): void
  /** Whether something the model said has arrived. */
  readonly hasOutput: boolean
  /** Whether the backend said how the answer ended. Only then is there a reply. */
  readonly isComplete: boolean
  reply(): BackendReply
  /** What has come so far, if every event was given a draft. Never throws: what makes no sense yet is left out. */
  partial(): PartialReply
}
