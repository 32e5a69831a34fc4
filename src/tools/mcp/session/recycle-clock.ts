import { maxTimerMs } from '../../../kit/index.ts'
import type { ServerOptions } from '../config/server-config.ts'

/** Tells, once, when a connection is idle or too old. Calls only note their end: thousands a second must not set timers. */
export class RecycleClock {
  readonly #idleMs: number
  readonly #onDue: (why: 'idle' | 'lifetime') => void
  readonly #inFlight: () => number
  #lastUsedAt = performance.now()
  #idleTimer: NodeJS.Timeout | undefined
  readonly #lifeTimer: NodeJS.Timeout | undefined

  constructor(limits: ServerOptions, inFlight: () => number, onDue: (why: 'idle' | 'lifetime') => void) {
    const { idleMs = Number.POSITIVE_INFINITY, maxLifetimeMs = Number.POSITIVE_INFINITY } = limits
    this.#idleMs = idleMs
    this.#inFlight = inFlight
    this.#onDue = onDue
    if (idleMs < maxTimerMs) this.#waitIdle(idleMs)
    // Running calls do not matter here: under steady load there would never be a moment without one.
    if (maxLifetimeMs < maxTimerMs) this.#lifeTimer = setTimeout(() => this.#due('lifetime'), maxLifetimeMs)
  }

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

/** Servers that change several tools at once send a notice for each. */
const debounceMs = 50

/** Reads a list again some time after notices of a change: once for many notices, and one reading at a time. */
export class DebouncedRefresh {
  readonly #read: () => Promise<void>
  #timer: NodeJS.Timeout | undefined
  #isReading = false
  #isAskedAgain = false

  /** `read` never rejects. */
  constructor(read: () => Promise<void>) {
    this.#read = read
  }

  ask(): void {
    if (this.#isReading) this.#isAskedAgain = true
    else this.#timer ??= setTimeout(() => this.#start(), debounceMs)
  }

  /** Drops pending requests. A reading under way ends by itself. */
  cancel(): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
    this.#isAskedAgain = false
  }

  #start(): void {
    this.#timer = undefined
    this.#isReading = true
    void this.#read().finally(() => {
      this.#isReading = false
      if (!this.#isAskedAgain) return
      this.#isAskedAgain = false
      this.ask()
    })
  }
}
