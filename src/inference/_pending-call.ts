import type { BackendRequest, ModelRequest } from './backend.ts'
import type { Lane } from './_lanes.ts'
import type { CallHooks, SentCall } from './model-contract.ts'
import type { GateTicket } from './limits/overload-gate.ts'
import { WatchedSink } from './_watched-sink.ts'

/** One model call while it is being made: what it has been granted and what it has been through. */
export class PendingCall implements SentCall {
  readonly request: ModelRequest
  readonly hooks: CallHooks
  readonly sink: WatchedSink | undefined
  readonly startedAt = performance.now()
  /** When the last try was sent. */
  sentAt = 0
  /** All tries that were sent, excused ones included. */
  tries = 0
  /** Tries that count against `maxTries`. */
  counted = 0
  /** Tokens reserved from the rate limit for the next try. */
  reserved: number | undefined
  lane: Lane | undefined
  ticket: GateTicket | undefined
  #failedAt: Lane[] | undefined

  constructor(request: ModelRequest, hooks: CallHooks) {
    this.request = request
    this.hooks = hooks
    this.sink = request.sink && new WatchedSink(request.sink)
  }

  /** One try, as the backend gets it. */
  nextTry(): BackendRequest {
    const { request, sink } = this
    const tried = { ...request, retry: this.tries - 1, signal: this.hooks.signal }
    return sink ? { ...tried, sink } : tried
  }

  /** Whether part of the reply was passed on, which another try could not take back. */
  get hasBegun(): boolean {
    return this.sink?.hasTaken ?? false
  }

  get backend(): string {
    return this.lane?.backend.name ?? ''
  }

  /** Whether a try is on its way. A call has no ticket once its try has been answered or has failed. */
  get isUnderWay(): boolean {
    return this.ticket !== undefined
  }

  get isUnheard(): boolean {
    return this.isUnderWay && this.lane?.isSilentSince(this.sentAt) === true
  }

  hasFailedAt(lane: Lane): boolean {
    return this.#failedAt?.includes(lane) ?? false
  }

  failedAt(lane: Lane): void {
    this.#failedAt ??= []
    if (!this.#failedAt.includes(lane)) this.#failedAt.push(lane)
  }

  /** Called when all backends have failed the call: none is preferred to another any more. */
  forgetFailures(): void {
    this.#failedAt = undefined
  }
}

/** The lane of a call that was admitted. */
export function laneOf({ lane }: PendingCall): Lane {
  return lane as Lane
}
