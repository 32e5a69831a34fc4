import { timerMs } from './timer-ms.ts'

/** Which limit ran out: that of the time that counts, or that of the wall clock. */
export type SpentTime = 'time' | 'wall'

export interface StopClockOptions {
  readonly limitMs: number
  /** A limit for all the time that passes, also while the clock stands still. */
  readonly wallMs?: number
  /** Called when either limit is spent, if the clock is watched. */
  readonly onSpent: (what: SpentTime) => void
}

/**
 * A deadline whose clock can stand still: no time passes while a caller waits for something that is not its own doing.
 * Waits may overlap; the clock goes on when the last of them ends.
 *
 * Waits only ever put the deadline off, so they leave the timer alone: one that fires too early is set again.
 */
export class StopClock {
  readonly #limitMs: number
  readonly #onSpent: (what: SpentTime) => void
  readonly #startedAt = performance.now()
  readonly #wallEndsAt: number
  #stoppedAt: number | undefined
  #carriedMs = 0
  #waiting = 0
  #waitStartedAt = 0
  #waitedMs = 0
  #timer: NodeJS.Timeout | undefined
  /** When the timer is due; Infinity if the clock is not watched, or if nothing can run out as things are. */
  #dueAt = Infinity
  #isWatched = false

  constructor({ limitMs, wallMs = Infinity, onSpent }: StopClockOptions) {
    this.#limitMs = limitMs
    this.#wallEndsAt = this.#startedAt + wallMs
    this.#onSpent = onSpent
  }

  get elapsedMs(): number {
    return this.#carriedMs + this.#now - this.#startedAt - this.waitedMs
  }

  get leftMs(): number {
    return this.#limitMs - this.elapsedMs
  }

  get wallMsLeft(): number {
    return this.#wallEndsAt - this.#now
  }

  get waitedMs(): number {
    return this.#waitedMs + (this.#waiting > 0 ? this.#now - this.#waitStartedAt : 0)
  }

  get isWaiting(): boolean {
    return this.#waiting > 0
  }

  get isStopped(): boolean {
    return this.#stoppedAt !== undefined
  }

  /** From now on `onSpent` is called. Synchronous code could not be interrupted and needs no timer. */
  watch(): void {
    this.#isWatched = true
    this.#setTimer()
  }

  startWait(): void {
    this.#waiting += 1
    if (this.#waiting === 1) this.#waitStartedAt = this.#now
  }

  endWait(): void {
    this.#waiting -= 1
    if (this.#waiting > 0) return
    this.#waitedMs += this.#now - this.#waitStartedAt
    this.#setTimer()
  }

  /** Counts time that has passed as a wait after all. */
  giveBack(ms: number): void {
    this.#waitedMs += ms
  }

  /** Counts time that passed before this clock was started. */
  carry(ms: number): void {
    this.#carriedMs += ms
    this.#setTimer()
  }

  /** Stops the clock for good: the timer is gone and the figures stay as they are. */
  stop(): void {
    this.#stoppedAt ??= performance.now()
    clearTimeout(this.#timer)
  }

  get #now(): number {
    return this.#stoppedAt ?? performance.now()
  }

  /** Ensures that a timer is set that is not due too late. */
  #setTimer(): void {
    // A wait may end after the clock was stopped.
    if (!this.#isWatched || this.#stoppedAt !== undefined) return
    const leftMs = this.#waiting > 0 ? this.wallMsLeft : Math.min(this.leftMs, this.wallMsLeft)
    const dueAt = performance.now() + leftMs
    if (dueAt >= this.#dueAt) return
    clearTimeout(this.#timer)
    this.#dueAt = dueAt
    this.#timer = setTimeout(StopClock.#fire, timerMs(Math.ceil(leftMs)), this)
  }

  /** Takes the clock as an argument, because a closure for each clock would cost more. */
  static #fire(this: void, clock: StopClock): void {
    clock.#onTimer()
  }

  #onTimer(): void {
    this.#dueAt = Infinity
    const { leftMs, wallMsLeft } = this
    // On a loop that was held up both may be spent: then the one that was due first counts.
    if (this.#waiting === 0 && leftMs <= 0 && leftMs <= wallMsLeft) this.#onSpent('time')
    else if (wallMsLeft <= 0) this.#onSpent('wall')
    else this.#setTimer()
  }
}
