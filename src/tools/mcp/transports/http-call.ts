import type { JSONRPCMessage } from '@modelcontextprotocol/client'
import type { Dispatcher } from 'undici'
import { type ArraySet, type EventSink, SseDecoder, timerMs } from '../../../kit/index.ts'
import { type ResponseHeaders, retryAfterMs } from '../../../http/index.ts'
import { neverConnected, statusFailure } from './call-failure.ts'
import type { CallFailure, CallRequest } from './pending-calls.ts'
import { isRpcMessage, maxErrorBytes, maxMessageBytes } from './rpc-messages.ts'

/** How long an answered stream may stay open: a well-behaved server ends it, and aborting would cost a new socket. */
const lingerMs = 250
/** How often a broken stream is resumed without anything new in it. */
const maxResumptions = 3
/** The pause before the second resumption and later ones, where the server does not say. */
const resumeMs = 1000

interface HttpCallOptions {
  readonly id: number
  readonly post: (reply: HttpReply) => void
  /** Asks for what came after an event of a stream that broke. */
  readonly resume: (lastEventId: string, reply: HttpReply) => void
  readonly onMessage: (message: JSONRPCMessage) => void
  /** Called if this request will bring no answer. */
  readonly onFailure: (failure: CallFailure) => void
  /** The link's calls that have their answer while their stream is still open; the link ends them when it closes. */
  readonly lingering: ArraySet<HttpCall>
}

/**
 * The HTTP requests of one call: the one that makes it, and those that resume its stream after a break. On undici's dispatcher
 * directly, because the SDK's way over `fetch` and web streams costs about four times the CPU (docs/decisions/0027-mcp-sdk.md),
 * and because the SDK cannot end a single stream.
 */
export class HttpCall implements CallRequest {
  readonly #options: HttpCallOptions
  #reply: HttpReply
  /** Runs until the next resumption, or until an answered stream is ended. */
  #timer: NodeJS.Timeout | undefined
  /** The last event of a stream that broke. */
  #lastEventId: string | undefined
  #retryMs: number | undefined
  #resumptions = 0
  #state: 'waiting' | 'lingering' | 'over' = 'waiting'

  constructor(options: HttpCallOptions) {
    this.#options = options
    this.#reply = this.#nextReply()
    options.post(this.#reply)
  }

  get isSent(): boolean {
    return this.#lastEventId !== undefined || this.#reply.isSent
  }

  release(): void {
    if (this.#state !== 'waiting') return
    this.#state = 'lingering'
    this.#options.lingering.add(this)
    clearTimeout(this.#timer)
    this.#timer = setTimeout(() => this.abort(), lingerMs)
  }

  abort(): void {
    if (this.#state === 'over') return
    this.#end()
    this.#reply.abort()
  }

  #nextReply(): HttpReply {
    const { id, onMessage } = this.#options
    return new HttpReply({ id, after: this.#lastEventId, onMessage, onEnd: (end) => this.#replyEnded(end) })
  }

  #replyEnded(end: ReplyEnd): void {
    // If the answer came on another stream, nothing is missing here.
    if (this.#state !== 'waiting' || end.kind === 'answered') this.#end()
    else if (end.kind === 'failed') this.#fail(end.failure)
    else if (this.#mayResume(end.lastEventId)) {
      this.#retryMs = end.retryMs ?? this.#retryMs
      this.#resumeAfter(end.lastEventId)
    } else this.#fail({ kind: 'cut', mayHaveRun: true, cause: end.cause })
  }

  #mayResume(lastEventId: string): boolean {
    this.#resumptions = lastEventId === this.#lastEventId ? this.#resumptions + 1 : 0
    return this.#resumptions < maxResumptions
  }

  #resumeAfter(lastEventId: string): void {
    const delayMs = this.#retryMs ?? (this.#lastEventId === undefined ? 0 : resumeMs)
    this.#lastEventId = lastEventId
    this.#timer = setTimeout(() => {
      this.#reply = this.#nextReply()
      this.#options.resume(lastEventId, this.#reply)
    }, timerMs(delayMs))
  }

  #fail(failure: CallFailure): void {
    this.#end()
    // A failed resumption says nothing about the call, which was made long before.
    if (this.#lastEventId === undefined) this.#options.onFailure(failure)
    else this.#options.onFailure({ ...failure, kind: failure.kind === 'lost' ? 'lost' : 'cut', mayHaveRun: true })
  }

  #end(): void {
    if (this.#state === 'lingering') this.#options.lingering.delete(this)
    this.#state = 'over'
    clearTimeout(this.#timer)
  }
}

type Controller = Dispatcher.DispatchController

/** How a reply ended; reported once. */
export type ReplyEnd =
  | { readonly kind: 'answered' }
  | { readonly kind: 'failed'; readonly failure: CallFailure }
  /** The stream ended before the answer, and can be resumed after the event of this id. */
  | {
      readonly kind: 'broken'
      readonly lastEventId: string
      readonly retryMs: number | undefined
      readonly cause: Error
    }

interface HttpReplyOptions {
  readonly id: number
  /** The event that this reply follows, if it resumes a stream that broke. */
  readonly after?: string | undefined
  readonly onMessage: (message: JSONRPCMessage) => void
  readonly onEnd: (end: ReplyEnd) => void
  /** The most that is read, of the whole or of one event; 64 MB if not given. */
  readonly maxBytes?: number
}

/** Reads the reply to one HTTP request of a call: JSON, or a stream of events with progress before the answer. */
export class HttpReply implements Dispatcher.DispatchHandler, EventSink {
  readonly #options: HttpReplyOptions
  readonly #maxBytes: number
  #controller: Controller | undefined
  #isAborted = false
  #isAnswered = false
  #isEnded = false
  #status = 0
  #headers: ResponseHeaders = {}
  #body: Buffer[] = []
  #bodyBytes = 0
  #stream: SseDecoder | undefined

  constructor(options: HttpReplyOptions) {
    this.#options = options
    this.#maxBytes = options.maxBytes ?? maxMessageBytes
  }

  /** Whether the request has had a socket to go out on. */
  get isSent(): boolean {
    return this.#controller !== undefined
  }

  /** Closes the socket of the request: the server sees that nobody reads the reply. `onEnd` is not called. */
  abort(): void {
    this.#isAborted = true
    if (!this.#isEnded) this.#controller?.abort(new Error('the call was aborted'))
    this.#isEnded = true
  }

  onRequestStart(controller: Controller): void {
    this.#controller = controller
    // The call was abandoned while it waited for a socket.
    if (this.#isAborted) controller.abort(new Error('the call was aborted'))
  }

  onResponseStart(_controller: Controller, status: number, headers: ResponseHeaders): void {
    this.#status = status
    this.#headers = headers
    const type = headers['content-type']
    const isStream = status === 200 && typeof type === 'string' && type.startsWith('text/event-stream')
    if (isStream) this.#stream = new SseDecoder(this, { maxBytes: this.#maxBytes, tooLong })
  }

  onResponseData(controller: Controller, chunk: Buffer): void {
    if (this.#isEnded) return
    try {
      if (this.#stream) this.#stream.push(chunk)
      else this.#keep(chunk)
    } catch (error) {
      const cause = error instanceof Error ? error : new Error(String(error))
      this.#fail({ kind: 'refused', mayHaveRun: true, cause })
      controller.abort(cause)
    }
  }

  onEvent(data: string): void {
    this.#read(data)
  }

  onResponseEnd(): void {
    if (this.#stream) this.#endStream(new Error('the server closed the stream of the call without an answer'))
    else if (this.#status === 200) this.#readBody()
    else {
      const page = Buffer.concat(this.#body).toString()
      this.#fail(statusFailure(this.#status, page, retryAfterMs(this.#headers)))
    }
  }

  onResponseError(_controller: Controller, cause: Error): void {
    if (this.#stream) this.#endStream(cause)
    else if (neverConnected(cause)) this.#fail({ kind: 'lost', mayHaveRun: false, cause })
    else this.#fail({ kind: 'cut', mayHaveRun: this.isSent, cause })
  }

  #keep(chunk: Buffer): void {
    this.#bodyBytes += chunk.length
    if (this.#status !== 200 && this.#bodyBytes > maxErrorBytes) return
    if (this.#bodyBytes > this.#maxBytes) throw tooLong(this.#maxBytes)
    this.#body.push(chunk)
  }

  #readBody(): void {
    if (this.#isEnded) return
    try {
      this.#read(Buffer.concat(this.#body).toString())
    } catch {
      this.#fail({ kind: 'refused', mayHaveRun: true, cause: new Error('the reply to the call is not JSON') })
      return
    }
    const cause = new Error('the reply to the call contains no answer')
    if (this.#isAnswered) this.#end({ kind: 'answered' })
    else this.#fail({ kind: 'refused', mayHaveRun: true, cause })
  }

  #read(json: string): void {
    const value: unknown = JSON.parse(json)
    // Servers from before 2025-06 may answer in batches.
    for (const message of Array.isArray(value) ? value : [value]) {
      if (!isRpcMessage(message)) continue
      if ('id' in message && message.id === this.#options.id) this.#isAnswered = true
      this.#options.onMessage(message)
    }
  }

  #endStream(cause: Error): void {
    const { lastId = this.#options.after, retryMs } = this.#stream ?? {}
    if (this.#isAnswered) this.#end({ kind: 'answered' })
    else if (lastId === undefined) this.#fail({ kind: 'cut', mayHaveRun: true, cause })
    else this.#end({ kind: 'broken', lastEventId: lastId, retryMs, cause })
  }

  #fail(failure: CallFailure): void {
    this.#end({ kind: 'failed', failure })
  }

  #end(end: ReplyEnd): void {
    if (this.#isEnded) return
    this.#isEnded = true
    this.#options.onEnd(end)
  }
}

function tooLong(maxBytes: number): Error {
  return new Error(`the reply to the call is larger than ${maxBytes} bytes: have the tool return less`)
}
