import { MillraceError } from '../errors/index.ts'
import { RingQueue } from './ring-queue.ts'

interface Waiter {
  state: 'waiting' | 'gone'
  readonly grant: () => void
}

/**
 * Permits, first come first served, with a limit that can move while they are held. The queue is bounded: past
 * `maxWaiting` an acquire fails with `overloaded` instead of waiting.
 */
export class Semaphore {
  readonly #waiters = new RingQueue<Waiter>()
  readonly #maxWaiting: number
  #limit: number
  #held = 0
  #waiting = 0

  constructor(limit: number, maxWaiting = Number.POSITIVE_INFINITY) {
    this.#limit = limit
    this.#maxWaiting = maxWaiting
  }

  get limit(): number {
    return this.#limit
  }

  get held(): number {
    return this.#held
  }

  get waiting(): number {
    return this.#waiting
  }

  /** A smaller limit takes nothing back; it only holds new permits until enough were released. */
  resize(limit: number): void {
    this.#limit = limit
    this.#grantWaiting()
  }

  /** True if a permit was free; the caller then owes a `release`. The cheap path: no promise, no permit object. */
  tryAcquire(): boolean {
    if (this.#held >= this.#limit || this.#waiting > 0) return false
    this.#held += 1
    return true
  }

  /** Waits for a permit; the caller then owes a `release`. */
  acquire(signal?: AbortSignal): Promise<void> {
    if (signal?.aborted) return Promise.reject(signal.reason)
    if (this.tryAcquire()) return Promise.resolve()
    if (this.#waiting >= this.#maxWaiting) {
      return Promise.reject(new MillraceError('overloaded', `more than ${this.#maxWaiting} are waiting already`))
    }
    return new Promise((resolve, reject) => {
      const waiter: Waiter = {
        state: 'waiting',
        grant: () => {
          signal?.removeEventListener('abort', onAbort)
          resolve()
        },
      }
      const onAbort = (): void => {
        waiter.state = 'gone'
        this.#waiting -= 1
        reject(signal?.reason)
      }
      signal?.addEventListener('abort', onAbort, { once: true })
      this.#waiting += 1
      this.#waiters.push(waiter)
    })
  }

  release(): void {
    this.#held -= 1
    this.#grantWaiting()
  }

  #grantWaiting(): void {
    while (this.#held < this.#limit && this.#waiting > 0) {
      const waiter = this.#waiters.shift()
      if (!waiter) return
      // One that gave up stays in the ring until its turn comes; it was uncounted when it left.
      if (waiter.state === 'gone') continue
      this.#waiting -= 1
      this.#held += 1
      waiter.grant()
    }
  }
}
