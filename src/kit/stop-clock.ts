import { maxTimerMs } from './max-timer-ms.ts'

/**
 * A deadline whose clock can stand still: while anybody waits for something that is not their doing, no time passes.
 * Waits may overlap; the clock goes on when the last of them ends.
 */
export class StopClock {
  readonly #limitMs: number
  readonly #onSpent: () => void
  readonly #startedAt = performance.now()
  #stoppedAt: number | undefined
  #carriedMs = 0
  #waiting = 0
  #waitStartedAt = 0
  #waitedMs = 0
  #timer: NodeJS.Timeout | undefined

  constructor(limitMs: number, onSpent: () => void) {
    this.#limitMs = limitMs
    this.#onSpent = onSpent
    this.#arm()
  }

  get elapsedMs(): number {
    return this.#carriedMs + this.#now - this.#startedAt - this.waitedMs
  }

  get leftMs(): number {
    return this.#limitMs - this.elapsedMs
  }

  get waitedMs(): number {
    return this.#waitedMs + (this.#waiting > 0 ? this.#now - this.#waitStartedAt : 0)
  }

  get isStopped(): boolean {
    return this.#stoppedAt !== undefined
  }

  startWait(): void {
    this.#waiting += 1
    if (this.#waiting > 1) return
    this.#waitStartedAt = performance.now()
    clearTimeout(this.#timer)
  }

  endWait(): void {
    this.#waiting -= 1
    if (this.#waiting > 0) return
    this.#waitedMs += this.#now - this.#waitStartedAt
    this.#arm()
  }

  /** Time that has passed turns out to have been a wait. */
  giveBack(ms: number): void {
    this.#waitedMs += ms
    this.#rearm()
  }

  /** Time that counts though it passed before this clock was started. */
  carry(ms: number): void {
    this.#carriedMs += ms
    this.#rearm()
  }

  /** For good: its timer is gone and its figures stay as they are. */
  stop(): void {
    this.#stoppedAt ??= performance.now()
    clearTimeout(this.#timer)
  }

  get #now(): number {
    return this.#stoppedAt ?? performance.now()
  }

  #rearm(): void {
    if (this.#waiting > 0) return
    clearTimeout(this.#timer)
    this.#arm()
  }

  #arm(): void {
    // A wait may end after the clock was stopped.
    if (this.#stoppedAt !== undefined) return
    this.#timer = setTimeout(this.#onSpent, Math.min(Math.max(this.leftMs, 0), maxTimerMs))
  }
}
