import { maxTimerMs } from '../../../kit/index.ts'

export interface RecycleLimits {
  readonly idleMs?: number | undefined
  readonly maxLifetimeMs?: number | undefined
}

/**
 * Tells, once, when a connection has been unused for too long or has become too old. There is one timer for each, which looks
 * when it fires: calls only note that they ended, since thousands of them a second must not set timers for this.
 */
export class RecycleClock {
  readonly #idleMs: number
  readonly #onDue: (why: 'idle' | 'lifetime') => void
  readonly #inFlight: () => number
  #lastUsedAt = performance.now()
  #idleTimer: NodeJS.Timeout | undefined
  readonly #lifeTimer: NodeJS.Timeout | undefined

  constructor(limits: RecycleLimits, inFlight: () => number, onDue: (why: 'idle' | 'lifetime') => void) {
    const { idleMs = Number.POSITIVE_INFINITY, maxLifetimeMs = Number.POSITIVE_INFINITY } = limits
    this.#idleMs = idleMs
    this.#inFlight = inFlight
    this.#onDue = onDue
    if (idleMs < maxTimerMs) this.#waitIdle(idleMs)
    // Running calls do not matter here: under steady load there would never be a moment without one.
    if (maxLifetimeMs < maxTimerMs) this.#lifeTimer = setTimeout(() => this.#due('lifetime'), maxLifetimeMs)
  }

  /** A call has ended. */
  used(): void {
    this.#lastUsedAt = performance.now()
  }

  stop(): void {
    clearTimeout(this.#idleTimer)
    clearTimeout(this.#lifeTimer)
  }

  #waitIdle(ms: number): void {
    this.#idleTimer = setTimeout(() => {
      const leftMs = this.#inFlight() > 0 ? this.#idleMs : this.#lastUsedAt + this.#idleMs - performance.now()
      if (leftMs > 0) this.#waitIdle(leftMs)
      else this.#due('idle')
    }, ms)
  }

  #due(why: 'idle' | 'lifetime'): void {
    this.stop()
    this.#onDue(why)
  }
}
