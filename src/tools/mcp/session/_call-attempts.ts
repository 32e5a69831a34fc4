import type { Connection } from './_connection.ts'
import type { CallFailure } from '../link/pending-call.ts'
import type { SessionHold } from './_session-hold.ts'
import type { ServerCall } from './server-call.ts'

/** An attempt after which there was another. */
type FailedAttempt = CallFailure & { readonly connection: Connection }

/** A call on its way, over all its attempts: one, and one more for each kind of failure that it met. */
export class CallAttempts {
  readonly call: ServerCall
  /** Of the rollout that made it: by the time it ends the session may be another's. */
  readonly hold: SessionHold
  readonly limitMs: number
  readonly #startedAt = performance.now()
  #failed: readonly FailedAttempt[] = []

  constructor(call: ServerCall, hold: SessionHold, limitMs: number) {
    this.call = call
    this.hold = hold
    this.limitMs = limitMs
  }

  /** Of the present one, from 1. */
  get number(): number {
    return this.#failed.length + 1
  }

  get elapsedMs(): number {
    return performance.now() - this.#startedAt
  }

  get leftMs(): number {
    return this.limitMs - this.elapsedMs
  }

  /** Why there is more than one. */
  get lastFailure(): FailedAttempt | undefined {
    return this.#failed.at(-1)
  }

  /** How many of those that failed may have run. */
  get mayHaveRun(): number {
    return this.#failed.filter(({ mayHaveRun }) => mayHaveRun).length
  }

  hasFailedBy(kind: CallFailure['kind']): boolean {
    return this.#failed.some((failed) => failed.kind === kind)
  }

  /** There will be another. */
  failed(failure: CallFailure, connection: Connection): void {
    this.#failed = [...this.#failed, { ...failure, connection }]
  }
}
