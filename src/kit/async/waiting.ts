import { MillraceError } from '../../errors/index.ts'
import { type AbortListener, offAbort, onAbort, timerMs } from './lifecycle.ts'

/** Resolves after `ms`; rejects with the signal's reason as soon as it aborts, and leaves neither timer nor listener. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  if (signal?.aborted) return Promise.reject(signal.reason)
  return new Promise((resolve, reject) => {
    const cancel = (): void => {
      clearTimeout(timer)
      reject(signal?.reason)
    }
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', cancel)
      resolve()
    }, timerMs(ms))
    signal?.addEventListener('abort', cancel, { once: true })
  })
}

/** Whether the work ends in time. If not, it goes on. No timer is left behind. */
export async function within(work: Promise<unknown>, ms: number): Promise<boolean> {
  const { promise: late, resolve } = Promise.withResolvers<false>()
  const timer = setTimeout(() => resolve(false), timerMs(ms))
  const ends = work.then(() => true)
  return Promise.race([ends, late]).finally(() => clearTimeout(timer))
}

/** Waits that grow exponentially, with jitter, so that callers that failed together do not return together. */
export interface Backoff {
  readonly firstMs: number
  readonly maxMs: number
  readonly factor: number
}

/** `retry` is 1 for the first repetition. The wait is between half and all of the exponential step. */
export function backoffMs(backoff: Backoff, retry: number, random: () => number = Math.random): number {
  const step = Math.min(backoff.maxMs, backoff.firstMs * backoff.factor ** (retry - 1))
  return step * (0.5 + 0.5 * random())
}

interface SemaphoreListener {
  readonly onWait?: () => void
  readonly onRelease?: () => void
}

interface Waiter extends AbortListener {
  readonly grant: () => void
}

/**
 * Permits with a limit that can move while they are held: first come, first served. Callers bound the queue themselves. If
 * `maxWaiting` is given, an acquire past it fails with `overloaded` instead of waiting.
 */
export class Semaphore {
  #limit: number
  #held = 0
  readonly #maxWaiting: number
  readonly #listener: SemaphoreListener
  // A Set iterates in insertion order, so the first has waited longest.
  readonly #waiters = new Set<Waiter>()

  constructor(limit: number, maxWaiting = Number.POSITIVE_INFINITY, listener: SemaphoreListener = {}) {
    this.#limit = limit
    this.#maxWaiting = maxWaiting
    this.#listener = listener
  }

  get limit(): number {
    return this.#limit
  }

  get held(): number {
    return this.#held
  }

  get waiting(): number {
    return this.#waiters.size
  }

  /** Sets the limit. A smaller one takes no permit back; it only holds new ones back until enough were released. */
  resize(limit: number): void {
    this.#limit = limit
    this.#passOn()
  }

  /** True if a permit was free; the caller then owes a `release`. */
  tryAcquire(): boolean {
    if (this.#waiters.size > 0 || this.#held >= this.#limit) return false
    this.#held += 1
    return true
  }

  acquire(signal?: AbortSignal): Promise<void> {
    if (signal?.aborted) return Promise.reject(signal.reason)
    if (this.tryAcquire()) return Promise.resolve()
    if (this.#waiters.size >= this.#maxWaiting) {
      return Promise.reject(new MillraceError('overloaded', `more than ${this.#maxWaiting} are waiting already`))
    }
    return new Promise((resolve, reject) => {
      let isWaiting = true
      const waiter: Waiter = {
        grant: () => {
          isWaiting = false
          if (signal) offAbort(signal, waiter)
          resolve()
        },
        handleEvent: () => {
          // Another listener heard the same abort first and released a permit, which this waiter got.
          if (!isWaiting) return
          if (signal) offAbort(signal, waiter)
          this.#waiters.delete(waiter)
          reject(signal?.reason)
        },
      }
      if (signal) onAbort(signal, waiter)
      this.#waiters.add(waiter)
      this.#listener.onWait?.()
    })
  }

  release(): void {
    this.#held -= 1
    this.#passOn()
    this.#listener.onRelease?.()
  }

  #passOn(): void {
    while (this.#held < this.#limit) {
      const [waiter] = this.#waiters
      if (!waiter) return
      this.#waiters.delete(waiter)
      this.#held += 1
      waiter.grant()
    }
  }
}

export type SpentTime = 'time' | 'wall'

interface StopClockOptions {
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
    this.#timer = setTimeout(() => this.#onTimer(), timerMs(Math.ceil(leftMs)))
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
