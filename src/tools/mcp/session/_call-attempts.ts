import type { Connection } from './_connection.ts'
import type { CallFailure } from '../link/pending-call.ts'
import type { SessionHold } from './_session-hold.ts'
import type { ServerCall } from './server-call.ts'

/** An attempt that failed and was followed by another. */
type FailedAttempt = CallFailure & { readonly connection: Connection }

/** A call with all its attempts: one, and one more for each kind of failure that it met. */
export class CallAttempts {
  readonly call: ServerCall
  /** The hold of the rollout that made the call: by the time the call ends, another rollout may hold the session. */
  readonly hold: SessionHold
  readonly limitMs: number
  readonly #startedAt = performance.now()
  #failed: readonly FailedAttempt[] = []
  #waitedMs = 0
  #waitStartedAt = 0

  constructor(call: ServerCall, hold: SessionHold, limitMs: number) {
    this.call = call
    this.hold = hold
    this.limitMs = limitMs
  }

  /** The number of the present attempt, from 1. */
  get number(): number {
    return this.#failed.length + 1
  }

  get elapsedMs(): number {
    return performance.now() - this.#startedAt
  }

  get leftMs(): number {
    return this.limitMs - this.elapsedMs + this.#waitedMs
  }

  /** The call begins to wait for its server, on the time of its rollout and not on its own: `leftMs` counts that when it ends. */
  startWait(): void {
    this.#waitStartedAt = performance.now()
  }

  endWait(): void {
    this.#waitedMs += performance.now() - this.#waitStartedAt
  }

  /** The failure before the present attempt, if there was one. */
  get lastFailure(): FailedAttempt | undefined {
    return this.#failed.at(-1)
  }

  /** How many of the failed attempts may have run. */
  get mayHaveRun(): number {
    return this.#failed.filter(({ mayHaveRun }) => mayHaveRun).length
  }

  hasFailedBy(kind: CallFailure['kind']): boolean {
    return this.#failed.some((failed) => failed.kind === kind)
  }

  /** Notes a failed attempt; another one follows. */
  failed(failure: CallFailure, connection: Connection): void {
    this.#failed = [...this.#failed, { ...failure, connection }]
  }
}
