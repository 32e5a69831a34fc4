import { MillraceError } from '../errors/index.ts'

export interface RateLimitOptions {
  readonly requestsPerMinute: number | undefined
  readonly tokensPerMinute: number | undefined
}

interface Waiter {
  readonly tokens: number
  readonly resolve: () => void
  readonly reject: (reason: unknown) => void
  readonly signal: AbortSignal
  readonly onAbort: () => void
}

/** How much may be used at once after a pause. A whole minute's worth would allow twice the rate in the first minute. */
const burstMs = 10_000
const minuteMs = 60_000

/** What comes in steadily and may be taken out, down into debt: one request may need more than the bucket holds. */
class Bucket {
  readonly #perMs: number
  readonly #capacity: number
  #level: number
  #filledAt: number

  constructor(perMinute: number, now: number) {
    this.#perMs = perMinute / minuteMs
    this.#capacity = Math.max(1, this.#perMs * burstMs)
    this.#level = this.#capacity
    this.#filledAt = now
  }

  /** Milliseconds until `amount` may be taken; 0 if it may be now. */
  waitMs(amount: number, now: number): number {
    this.#level = Math.min(this.#capacity, this.#level + (now - this.#filledAt) * this.#perMs)
    this.#filledAt = now
    const missing = Math.min(amount, this.#capacity) - this.#level
    // Sums of fractions never quite reach a whole.
    return missing <= 1e-9 ? 0 : missing / this.#perMs
  }

  take(amount: number): void {
    this.#level -= amount
  }
}

/**
 * Requests and tokens per minute, first come first served. Tokens are reserved by an estimate before a request and
 * corrected by `settle` when its usage is known. As many wait as there are callers; one timer serves them all.
 */
export class RateLimit {
  readonly #requests: Bucket | undefined
  readonly #tokens: Bucket | undefined
  // A Set iterates in insertion order, so the first is the one that has waited longest.
  readonly #waiters = new Set<Waiter>()
  #timer: NodeJS.Timeout | undefined

  constructor({ requestsPerMinute, tokensPerMinute }: RateLimitOptions) {
    const now = performance.now()
    if (requestsPerMinute !== undefined) this.#requests = new Bucket(requestsPerMinute, now)
    if (tokensPerMinute !== undefined) this.#tokens = new Bucket(tokensPerMinute, now)
  }

  get waiting(): number {
    return this.#waiters.size
  }

  /** Takes a request and its estimated tokens if that is possible now and nobody waits already. */
  tryTake(tokens: number): boolean {
    if (this.#waiters.size > 0 || this.#waitMs(tokens) > 0) return false
    this.#take(tokens)
    return true
  }

  take(tokens: number, signal: AbortSignal): Promise<void> {
    if (signal.aborted) return Promise.reject(signal.reason)
    if (this.tryTake(tokens)) return Promise.resolve()
    return new Promise((resolve, reject) => {
      const onAbort = (): void => {
        this.#waiters.delete(waiter)
        reject(signal.reason)
        this.#serve()
      }
      const waiter: Waiter = { tokens, resolve, reject, signal, onAbort }
      signal.addEventListener('abort', onAbort, { once: true })
      this.#waiters.add(waiter)
      if (this.#waiters.size === 1) this.#serve()
    })
  }

  /** Replaces an estimate by what was really used; 0 for a request that was not answered. */
  settle(reserved: number, used: number): void {
    this.#tokens?.take(used - reserved)
    if (this.#waiters.size > 0) this.#serve()
  }

  /** Turns away whoever waits. */
  shut(): void {
    clearTimeout(this.#timer)
    for (const waiter of this.#waiters) {
      this.#remove(waiter)
      waiter.reject(new MillraceError('closed', 'the model was closed while requests waited for its rate limit'))
    }
  }

  /** Lets go whoever may go and sets the timer for the next. */
  #serve(): void {
    clearTimeout(this.#timer)
    for (const waiter of this.#waiters) {
      const waitMs = this.#waitMs(waiter.tokens)
      if (waitMs > 0) {
        this.#timer = setTimeout(() => this.#serve(), waitMs)
        return
      }
      this.#take(waiter.tokens)
      this.#remove(waiter)
      waiter.resolve()
    }
  }

  #remove(waiter: Waiter): void {
    this.#waiters.delete(waiter)
    waiter.signal.removeEventListener('abort', waiter.onAbort)
  }

  #waitMs(tokens: number): number {
    const now = performance.now()
    return Math.max(this.#requests?.waitMs(1, now) ?? 0, this.#tokens?.waitMs(tokens, now) ?? 0)
  }

  #take(tokens: number): void {
    this.#requests?.take(1)
    this.#tokens?.take(tokens)
  }
}
