import { type AbortListener, timerMs, offAbort, onAbort } from '../../../kit/index.ts'
import type { CallRequest } from './server-link.ts'
import type { ServerCall } from '../session/server-call.ts'

/** How a request for a tool ended, as the connection saw it. The session decides what that means. */
export type CallOutcome =
  | { readonly kind: 'result'; readonly result: unknown }
  | { readonly kind: 'rpc-error'; readonly code: number; readonly message: string }
  | { readonly kind: 'timeout'; readonly wasSent: boolean }
  | { readonly kind: 'aborted' }
  | CallFailure

/** Why there is no answer. In all three kinds `mayHaveRun` is false only if the server cannot have seen the call. */
export type CallFailure = CallRefusal | CallCut | CallLoss

/** The server refused the call before it looked at it (an HTTP status), and is still there. */
export interface CallRefusal {
  readonly kind: 'refused'
  readonly mayHaveRun: boolean
  readonly cause: Error
  /** The server has too much to do just now, and may be asked again after this time. */
  readonly retryAfterMs?: number
  /** The status is one with which a proxy answers for a server that is away. */
  readonly isOfGateway?: boolean
}

/** The request of this call ended without an answer. The server's session may still exist. */
export interface CallCut {
  readonly kind: 'cut'
  readonly mayHaveRun: boolean
  readonly cause: Error
}

/** The connection, or the server's session on it, is gone. */
export interface CallLoss {
  readonly kind: 'lost'
  readonly mayHaveRun: boolean
  readonly cause: Error
}

/** The sender of a call, told when nobody waits for its answer any more. */
export interface CallOwner {
  giveUp(call: PendingCall, why: 'timeout' | 'aborted'): void
}

/**
 * One request that waits for its answer, with its own deadline. The call is itself the listener on the caller's signal and the
 * argument of its timer, so that it needs no closures: thousands of calls wait on one session.
 */
export class PendingCall implements AbortListener {
  readonly outcome: Promise<CallOutcome>
  readonly onProgress: ServerCall['onProgress']
  /** The call's place in `PendingCalls`, and its id on the wire. */
  id = 0
  /** The HTTP request of this call alone, where a call has one. */
  request: CallRequest | undefined
  readonly #owner: CallOwner
  readonly #signal: AbortSignal
  readonly #timer: NodeJS.Timeout
  readonly #resolve: (outcome: CallOutcome) => void

  constructor(owner: CallOwner, call: ServerCall, timeoutMs: number) {
    const { promise, resolve } = Promise.withResolvers<CallOutcome>()
    this.outcome = promise
    this.onProgress = call.onProgress
    this.#owner = owner
    this.#signal = call.signal
    this.#resolve = resolve
    // Progress does not move the deadline: a tool that reports progress for ever would never end.
    this.#timer = setTimeout(timedOut, timerMs(timeoutMs), this)
    onAbort(call.signal, this)
  }

  settle(outcome: CallOutcome): void {
    clearTimeout(this.#timer)
    offAbort(this.#signal, this)
    this.#resolve(outcome)
  }

  /** The caller's signal aborted. */
  handleEvent(): void {
    this.#owner.giveUp(this, 'aborted')
  }

  timedOut(): void {
    this.#owner.giveUp(this, 'timeout')
  }
}

function timedOut(call: PendingCall): void {
  call.timedOut()
}
