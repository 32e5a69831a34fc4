import type { JSONRPCMessage } from '@modelcontextprotocol/client'
import { timerMs, type ArraySet } from '../../../kit/index.ts'
import { HttpReply, type ReplyEnd } from './_http-reply.ts'
import type { CallFailure } from './pending-call.ts'
import type { CallRequest } from './server-link.ts'

/**
 * How long an answered stream may stay open. A well-behaved server ends it with the answer, and the socket is kept; aborting
 * would cost a new one.
 */
const lingerMs = 250
/** How often a broken stream is resumed without anything new in it. */
const maxResumptions = 3
/** The pause before the second resumption and later ones, where the server does not say. */
const resumeMs = 1000

export interface HttpCallOptions {
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

  /** Sends the call. */
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
    this.#timer = setTimeout(endLingering, lingerMs, this)
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
    this.#timer = setTimeout(() => this.#resume(lastEventId), timerMs(delayMs))
  }

  #resume(lastEventId: string): void {
    this.#reply = this.#nextReply()
    this.#options.resume(lastEventId, this.#reply)
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

function endLingering(call: HttpCall): void {
  call.abort()
}
