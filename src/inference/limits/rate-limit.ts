import { MillraceError } from '../../errors/index.ts'
import { timerMs, WaitList } from '../../kit/index.ts'

/** A worker's part of the rate of a model. */
export interface RateShare {
  leaseholders: number
  waiting: number
  /** Whether the buckets begin empty: the worker replaces another one, which may have used its share of the burst. */
  readonly startsEmpty: boolean
}

export interface RateLimitOptions {
  readonly requestsPerMinute: number | undefined
  readonly tokensPerMinute: number | undefined
  /** If missing, the rate is this worker's own. */
  readonly share?: RateShare | undefined
}

interface WaitingCall {
  readonly tokens: number
}

/** How much of the rate may be used at once: a whole minute's worth would allow twice the rate in the first minute. */
const burstMs = 10_000
const minuteMs = 60_000
/** Times are sums of fractions and may be off by a rounding error; differences up to this count as none. */
const slackMs = 0.002

/** A bucket that fills steadily and may be emptied into debt. It is one number: the time when it will be full again. */
class Bucket {
  readonly #perMinute: number
  readonly #share: RateShare
  #fullAt: number

  constructor(perMinute: number, share: RateShare, fullAt: number) {
    this.#perMinute = perMinute
    this.#share = share
    this.#fullAt = fullAt
  }

  /** Takes an amount if the bucket holds it. An amount larger than the bucket may be taken when the bucket is full. */
  tryTake(amount: number, now: number): boolean {
    const costMs = this.#costMs(amount)
    const next = Math.max(this.#fullAt, now) + costMs
    if (next - now > this.#mostMs(costMs) + slackMs) return false
    this.#fullAt = next
    return true
  }

  /** Takes an amount whatever the bucket holds. A negative amount is put back. */
  take(amount: number, now: number): void {
    this.#fullAt = Math.max(this.#fullAt, now) + this.#costMs(amount)
  }

  /** Milliseconds until the bucket has earned the amount that was taken last; 0 if it held it. */
  waitMs(amount: number, now: number): number {
    const waitMs = this.#fullAt - now - this.#mostMs(this.#costMs(amount))
    return waitMs > slackMs ? waitMs : 0
  }

  /** How long it takes until that much has come in, with this worker's part of the rate. */
  #costMs(amount: number): number {
    return (amount * minuteMs * this.#share.leaseholders) / this.#perMinute
  }

  /** How far from full the bucket may be after a cost was taken. The bucket holds one request at least. */
  #mostMs(costMs: number): number {
    return Math.max(burstMs, this.#costMs(1), costMs)
  }
}

/**
 * Requests and tokens per minute, first come first served. Tokens are reserved by an estimate and corrected by `settle`. The
 * first call in the queue takes what it needs into debt, and waits until the debt is paid.
 */
export class RateLimit {
  readonly #share: RateShare
  readonly #requests: Bucket | undefined
  readonly #tokens: Bucket | undefined
  readonly #waiters = new WaitList<void, WaitingCall>()
  /** The first call in the queue, once it has taken what it needs, and when it may go. */
  #booked: WaitingCall | undefined
  #goesAt = 0
  #timer: NodeJS.Timeout | undefined

  constructor({ requestsPerMinute, tokensPerMinute, share }: RateLimitOptions) {
    this.#share = share ?? { leaseholders: 1, waiting: 0, startsEmpty: false }
    const fullAt = this.#share.startsEmpty ? performance.now() + burstMs : 0
    if (requestsPerMinute !== undefined) this.#requests = new Bucket(requestsPerMinute, this.#share, fullAt)
    if (tokensPerMinute !== undefined) this.#tokens = new Bucket(tokensPerMinute, this.#share, fullAt)
  }

  get waiting(): number {
    return this.#waiters.size
  }

  /** Takes a request and its estimated tokens, if that is possible now and no call waits already. */
  tryTake(tokens: number): boolean {
    if (this.#waiters.size > 0) return false
    const now = performance.now()
    if (this.#requests && !this.#requests.tryTake(1, now)) return false
    if (!this.#tokens || this.#tokens.tryTake(tokens, now)) return true
    this.#requests?.take(-1, now)
    return false
  }

  take(tokens: number, signal: AbortSignal): Promise<void> {
    if (signal.aborted) return Promise.reject(signal.reason)
    if (this.tryTake(tokens)) return Promise.resolve()
    const call = { tokens }
    const goes = this.#waiters.wait(signal, call, () => {
      if (this.#booked === call) this.#putBack(call)
      this.#serve()
    })
    if (this.#waiters.size === 1) this.#serve()
    else this.#countWaiting()
    return goes
  }

  /** Replaces an estimate by what was really used; 0 for a request that was not answered. */
  settle(reserved: number, used: number): void {
    this.#tokens?.take(used - reserved, performance.now())
    if (this.#waiters.size > 0) this.#serve()
  }

  shut(): void {
    clearTimeout(this.#timer)
    if (this.#booked) this.#putBack(this.#booked)
    this.#waiters.rejectAll(
      () => new MillraceError('closed', 'the model was closed while requests waited for its rate limit'),
    )
    this.#countWaiting()
  }

  #serve(): void {
    clearTimeout(this.#timer)
    this.#countWaiting()
    for (let call = this.#waiters.first; call; call = this.#waiters.first) {
      const now = performance.now()
      if (this.#booked !== call) this.#book(call, now)
      // Amounts that were put back since make the wait shorter; amounts that were taken since do not make it longer.
      this.#goesAt = Math.min(this.#goesAt, now + this.#waitMs(call.tokens, now))
      if (this.#goesAt > now) {
        this.#timer = setTimeout(() => this.#serve(), timerMs(this.#goesAt - now))
        return
      }
      this.#booked = undefined
      this.#waiters.resolveFirst()
      this.#countWaiting()
    }
  }

  #book(call: WaitingCall, now: number): void {
    this.#requests?.take(1, now)
    this.#tokens?.take(call.tokens, now)
    this.#booked = call
    this.#goesAt = Number.POSITIVE_INFINITY
  }

  #putBack(call: WaitingCall): void {
    this.#booked = undefined
    const now = performance.now()
    this.#requests?.take(-1, now)
    this.#tokens?.take(-call.tokens, now)
  }

  #waitMs(tokens: number, now: number): number {
    return Math.max(this.#requests?.waitMs(1, now) ?? 0, this.#tokens?.waitMs(tokens, now) ?? 0)
  }

  #countWaiting(): void {
    this.#share.waiting = this.#waiters.size
  }
}
