import type { JSONRPCMessage } from '@modelcontextprotocol/client'
import type { Dispatcher } from 'undici'
import { retryAfterMs } from '../../../inference/index.ts'
import { type EventSink, SseDecoder } from '../../../kit/index.ts'
import { neverConnected, statusFailure } from './call-failure.ts'
import { maxErrorBytes, maxMessageBytes } from './_message-limits.ts'
import type { CallFailure } from './pending-call.ts'
import { isRpcMessage } from './_rpc-message.ts'

type Controller = Dispatcher.DispatchController
type ResponseHeaders = Parameters<typeof retryAfterMs>[0]

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

export interface HttpReplyOptions {
  /** The id of the call whose answer is awaited. */
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
    if (!this.#isEnded) this.#controller?.abort(new Error('the call was given up'))
    this.#isEnded = true
  }

  onRequestStart(controller: Controller): void {
    this.#controller = controller
    // The call was given up while it waited for a socket.
    if (this.#isAborted) controller.abort(new Error('the call was given up'))
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

  /** Takes the data of one event. */
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
    if (this.#isAnswered) this.#end({ kind: 'answered' })
    else {
      const cause = new Error('the reply to the call holds no answer to it')
      this.#fail({ kind: 'refused', mayHaveRun: true, cause })
    }
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
