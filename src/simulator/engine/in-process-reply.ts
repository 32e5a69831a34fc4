import {
  type BackendReply,
  type BackendRequest,
  chatServer,
  type ReplyDelta,
  type ReplyEvent,
  type ReplySink,
  type ServerSentEvent,
} from '../../apis/index.ts'
import { offAbort, onAbort } from '../../kit/index.ts'
import { type ApiRequest, DialectApiRequest, type StreamStep, type StreamWriter } from '../apis/dialect-api.ts'
import { abortedError, faultError } from './faults.ts'
import {
  type BreakingFault,
  PacedReply,
  type PacedReplyOptions,
  type ReplyConsumer,
  type ReplyHost,
  type Sample,
  type TokenGroup,
} from './paced-reply.ts'
import { tokenFieldWriters } from '../apis/token-fields.ts'
import type { ImitationName } from './options.ts'

/** A request of this process as it would be over HTTP: a chat completion, read from the client's own body if there is one. */
export function chatRequest(request: BackendRequest, imitate: ImitationName): ApiRequest {
  if (request.body !== undefined) {
    const asked = chatServer.read(JSON.parse(request.body.toString()))
    return new DialectApiRequest(chatServer, tokenFieldWriters[imitate], asked)
  }
  const { messages, tools, toolChoice, responseFormat, parallelToolCalls, sampling, captureTokens } = request
  return new DialectApiRequest(chatServer, tokenFieldWriters[imitate], {
    model: 'sim',
    messages,
    tools,
    ...(toolChoice !== undefined && { toolChoice }),
    ...(responseFormat && { responseFormat }),
    ...(parallelToolCalls !== undefined && { parallelToolCalls }),
    sampling,
    stream: true,
    includeUsage: true,
    wantsTokenIds: captureTokens,
    wantsLogprobs: captureTokens,
    unsupported: [],
    body: {},
  })
}

export interface InProcessReplyOptions extends Omit<PacedReplyOptions, 'isStream'> {
  readonly signal: AbortSignal
  /** Where the events of a stream go, and who writes them; undefined for a reply that is not streamed. */
  readonly stream: { readonly sink: ReplySink; readonly writer: StreamWriter } | undefined
  readonly finish: (sample: Sample) => BackendReply
}

/** A reply that a caller in this process waits for. Once settled it holds neither timer nor listener. */
export class InProcessReply implements ReplyConsumer {
  readonly #reply: PacedReply
  readonly #options: InProcessReplyOptions
  readonly #settled = Promise.withResolvers<BackendReply>()
  #isSettled = false
  #hasBegun = false

  constructor(host: ReplyHost, options: InProcessReplyOptions) {
    this.#options = options
    this.#reply = new PacedReply(host, { ...options, isStream: options.stream !== undefined }, this)
    onAbort(options.signal, this)
  }

  run(): Promise<BackendReply> {
    this.#reply.start()
    return this.#settled.promise
  }

  handleEvent(): void {
    this.fail(this.#options.signal.reason)
  }

  fail(reason: unknown): void {
    if (this.#isSettled) return
    this.#settle()
    if (this.#hasBegun) this.#reportPartial()
    this.#settled.reject(reason)
  }

  onStart(version: string | undefined): boolean {
    return this.#hand((writer) => writer.start(version))
  }

  onGroup(group: TokenGroup, version: string | undefined, isGarbled: boolean): boolean {
    if (!isGarbled) return this.#hand((writer) => writer.group(group, version))
    this.fail(faultError('malformed'))
    return false
  }

  onPause(): void {}

  onEnd(sample: Sample): void {
    this.#hand((writer) => writer.end(sample), true)
    if (sample.isAborted) this.fail(abortedError())
    else if (this.#options.delivery.fault === 'malformed') this.fail(faultError('malformed'))
    else if (!this.#isSettled) {
      this.#settle()
      this.#settled.resolve(this.#options.finish(sample))
    }
  }

  onFault(fault: BreakingFault): void {
    if (fault !== 'stall') this.fail(faultError(fault))
  }

  #settle(): void {
    this.#isSettled = true
    this.#reply.stop()
    offAbort(this.#options.signal, this)
  }

  /** Reports what came before a failure. If nothing did, it is a refusal, not a broken reply. */
  #reportPartial(): void {
    const { message, tokens } = this.#options.finish(this.#reply.soFar())
    this.#options.stream?.sink.onPartial?.({ message, ...(tokens && tokens.ids.length > 0 && { tokens }) })
  }

  /** Returns whether the sink takes more. All events of one piece are handed over, as if they had arrived together. */
  #hand(write: (writer: StreamWriter) => StreamStep, isEnd = false): boolean {
    const { stream } = this.#options
    if (!stream) return true
    const { events, deltas } = write(stream.writer)
    if (events.length === 0) return true
    this.#hasBegun = true
    const handed = events.map(({ data }, index) => eventOf(data, index === 0 ? deltas : [], isEnd))
    return stream.sink.onEvents(handed, this.#resume)
  }

  readonly #resume = (): void => this.#reply.resume()
}

function eventOf(data: ServerSentEvent['data'], deltas: readonly ReplyDelta[], isEnd: boolean): ReplyEvent {
  if (data === '[DONE]') return { data, document: undefined, deltas, isEnd }
  return { data: JSON.stringify(data), document: data, deltas, isEnd }
}
