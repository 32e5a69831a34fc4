import { backoffMs } from '../../../kit/index.ts'

export interface ReconnectLimits {
  readonly max: number
  readonly windowMs: number
}

const backoff = { firstMs: 250, maxMs: 5000, factor: 4 }

/**
 * How often one session that had been open may be opened again within a window, whether that goes well or not: against servers
 * that crash over and over. (A `StartBudget` counts starts that failed, over all sessions of a server.) The first reopening waits
 * for nothing; each further one in the same window waits longer. Once the budget is spent the circuit is open: `waitMs` says for
 * how long.
 */
export class ReconnectBudget {
  readonly #limits: ReconnectLimits
  readonly #now: () => number
  /** When the last attempts were made, oldest first; at most `max`. */
  readonly #attempts: number[] = []

  constructor(limits: ReconnectLimits, now: () => number = () => performance.now()) {
    this.#limits = limits
    this.#now = now
  }

  get limits(): ReconnectLimits {
    return this.#limits
  }

  /** The time until another attempt may be made: 0 if now, infinite if never. */
  get waitMs(): number {
    this.#forget()
    if (this.#limits.max <= 0) return Number.POSITIVE_INFINITY
    if (this.#attempts.length < this.#limits.max) return 0
    return (this.#attempts[0] ?? 0) + this.#limits.windowMs - this.#now()
  }

  /** Counts an attempt; returns how long to wait before it is made. */
  take(): number {
    this.#forget()
    const earlier = this.#attempts.length
    this.#attempts.push(this.#now())
    return earlier === 0 ? 0 : backoffMs(backoff, earlier)
  }

  #forget(): void {
    const since = this.#now() - this.#limits.windowMs
    while ((this.#attempts[0] ?? Number.POSITIVE_INFINITY) <= since) this.#attempts.shift()
  }
}
