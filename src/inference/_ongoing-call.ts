import type { BackendRequest, ModelRequest } from './backend.ts'
import { CallWait, type WaitLimits } from './_call-wait.ts'
import type { BackendRoute } from './_backend-routes.ts'
import type { CallHooks, SentCall } from './model-contract.ts'
import type { GateTicket } from './limits/overload-gate.ts'
import { WatchedSink } from './_watched-sink.ts'

/** One model call while it is being made: what it has been granted and what it has been through. */
export class OngoingCall implements SentCall {
  readonly request: ModelRequest
  readonly hooks: CallHooks
  readonly sink: WatchedSink | undefined
  readonly wait: CallWait
  readonly startedAt = performance.now()
  /** When the last try was sent. */
  sentAt = 0
  /** All tries that were sent, excused ones included. */
  tries = 0
  /** Tries that count against `maxTries`. */
  counted = 0
  /** Tokens reserved from the rate limit for the next try. */
  reserved: number | undefined
  route: BackendRoute | undefined
  ticket: GateTicket | undefined
  #failedAt: BackendRoute[] | undefined

  constructor(request: ModelRequest, hooks: CallHooks, limits: WaitLimits) {
    this.request = request
    this.hooks = hooks
    this.wait = new CallWait(limits, hooks.signal)
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
    return this.route?.backend.name ?? ''
  }

  /** Whether a try is on its way. A call has no ticket once its try has been answered or has failed. */
  get isUnderWay(): boolean {
    return this.ticket !== undefined
  }

  get isUnheard(): boolean {
    return this.isUnderWay && this.route?.isSilentSince(this.sentAt) === true
  }

  hasFailedAt(route: BackendRoute): boolean {
    return this.#failedAt?.includes(route) ?? false
  }

  failedAt(route: BackendRoute): void {
    this.#failedAt ??= []
    if (!this.#failedAt.includes(route)) this.#failedAt.push(route)
  }

  /** Called when all backends have failed the call: none is preferred to another any more. */
  forgetFailures(): void {
    this.#failedAt = undefined
  }
}

/** The route of a call that was admitted. */
export function routeOf({ route }: OngoingCall): BackendRoute {
  return route as BackendRoute
}
