import { MillraceError } from '../../errors/index.ts'
import { timerMs } from '../../kit/index.ts'
import type { LimitCells } from './shared-limits-cells.ts'
import { TimeCell, machineNow } from './_time-cell.ts'

/** What a rate limit shares with those that other workers have for the same model. */
export interface RatePlace {
  readonly cells: Pick<LimitCells, 'requestsFullAt' | 'tokensFullAt' | 'rateWaiting'>
  /** The number of parties the rate is divided among. */
  readonly parties: Int32Array
  readonly place: number
}

export interface RateLimitOptions {
  readonly requestsPerMinute: number | undefined
  readonly tokensPerMinute: number | undefined
  /** If missing, the limit is this worker's own. */
  readonly shared?: RatePlace
}

interface Waiter {
  readonly tokens: number
  readonly resolve: () => void
  readonly reject: (reason: unknown) => void
  readonly signal: AbortSignal
  readonly onAbort: () => void
}

/**
 * How much of the rate may be used at once after a pause. A whole minute's worth would allow twice the rate in the first
 * minute.
 */
export const burstMs = 10_000
const minuteMs = 60_000
/** Times are sums of fractions and may be off by a rounding error; differences up to this count as none. */
const slackMs = 0.002

/**
 * A bucket that fills steadily and may be emptied into debt, because one request may need more than it holds. It is kept as
 * one number, the time when the bucket will be full again: taking makes that later, and time does the rest. So workers share
 * it with a compare and swap, and a worker that dies leaves nothing to be put right.
 */
class Bucket {
  readonly #perMinute: number
  readonly #fullAt: TimeCell
  readonly #parties: Int32Array

  constructor(perMinute: number, fullAt: BigInt64Array, parties: Int32Array) {
    this.#perMinute = perMinute
    this.#fullAt = new TimeCell(fullAt)
    this.#parties = parties
  }

  /** Takes an amount if the bucket holds it. An amount larger than the bucket may be taken when the bucket is full. */
  tryTake(amount: number, now: number): boolean {
    const costMs = this.#costMs(amount)
    for (;;) {
      const fullAt = this.#fullAt.ms
      const next = Math.max(fullAt, now) + costMs
      if (next - now > this.#mostMs(costMs) + slackMs) return false
      if (this.#fullAt.swap(fullAt, next)) return true
    }
  }

  /** Takes an amount whatever the bucket holds. A negative amount is put back. */
  take(amount: number, now: number): void {
    const costMs = this.#costMs(amount)
    for (;;) {
      const fullAt = this.#fullAt.ms
      if (this.#fullAt.swap(fullAt, Math.max(fullAt, now) + costMs)) return
    }
  }

  /** Milliseconds until the bucket has earned the amount that was taken last; 0 if it held it. */
  waitMs(amount: number, now: number): number {
    const waitMs = this.#fullAt.ms - now - this.#mostMs(this.#costMs(amount))
    return waitMs > slackMs ? waitMs : 0
  }

  /** How long it takes until that much has come in, with this party's part of the rate. */
  #costMs(amount: number): number {
    return (amount * minuteMs * (this.#parties[0] as number)) / this.#perMinute
  }

  /** How far from full the bucket may be after a cost was taken. The bucket holds one request at least. */
  #mostMs(costMs: number): number {
    return Math.max(burstMs, this.#costMs(1), costMs)
  }
}

/**
 * Requests and tokens per minute, first come first served. Tokens are reserved by an estimate before a request and
 * corrected by `settle` when its usage is known. There is no bound on how many wait; one timer serves them all.
 *
 * Workers that share the rate have a queue each. The first call in each queue takes what it needs at once, into debt,
 * and then waits until the debt is paid. So the queues take turns, a large request cannot starve behind another worker's small
 * ones, and nobody waits for a worker that does not answer.
 */
export class RateLimit {
  readonly #shared: RatePlace
  readonly #requests: Bucket | undefined
  readonly #tokens: Bucket | undefined
  // A Set iterates in insertion order, so the first is the one that has waited longest.
  readonly #waiters = new Set<Waiter>()
  /** The first call in the queue, once it has taken what it needs, and when it may go. */
  #booked: Waiter | undefined
  #goesAt = 0
  #timer: NodeJS.Timeout | undefined

  constructor({ requestsPerMinute, tokensPerMinute, shared = ownPlace() }: RateLimitOptions) {
    this.#shared = shared
    const { cells, parties } = shared
    if (requestsPerMinute !== undefined) this.#requests = new Bucket(requestsPerMinute, cells.requestsFullAt, parties)
    if (tokensPerMinute !== undefined) this.#tokens = new Bucket(tokensPerMinute, cells.tokensFullAt, parties)
  }

  get waiting(): number {
    return this.#waiters.size
  }

  /** Takes a request and its estimated tokens, if that is possible now and no call waits already. */
  tryTake(tokens: number): boolean {
    if (this.#waiters.size > 0) return false
    const now = machineNow()
    if (this.#requests && !this.#requests.tryTake(1, now)) return false
    if (!this.#tokens || this.#tokens.tryTake(tokens, now)) return true
    this.#requests?.take(-1, now)
    return false
  }

  take(tokens: number, signal: AbortSignal): Promise<void> {
    if (signal.aborted) return Promise.reject(signal.reason)
    if (this.tryTake(tokens)) return Promise.resolve()
    return new Promise((resolve, reject) => {
      const onAbort = (): void => {
        this.#remove(waiter)
        reject(signal.reason)
        this.#serve()
      }
      const waiter: Waiter = { tokens, resolve, reject, signal, onAbort }
      signal.addEventListener('abort', onAbort, { once: true })
      this.#waiters.add(waiter)
      this.#countWaiting()
      if (this.#waiters.size === 1) this.#serve()
    })
  }

  /** Replaces an estimate by what was really used; 0 for a request that was not answered. */
  settle(reserved: number, used: number): void {
    this.#tokens?.take(used - reserved, machineNow())
    if (this.#waiters.size > 0) this.#serve()
  }

  /** Rejects all calls that wait. */
  shut(): void {
    clearTimeout(this.#timer)
    for (const waiter of this.#waiters) {
      this.#remove(waiter)
      waiter.reject(new MillraceError('closed', 'the model was closed while requests waited for its rate limit'))
    }
  }

  /** Lets go the calls that may go, and sets the timer for the next. */
  #serve(): void {
    clearTimeout(this.#timer)
    for (const waiter of this.#waiters) {
      const now = machineNow()
      if (this.#booked !== waiter) this.#book(waiter, now)
      // Amounts that others have put back since make the wait shorter; amounts they have taken since do not make it longer.
      this.#goesAt = Math.min(this.#goesAt, now + this.#waitMs(waiter.tokens, now))
      if (this.#goesAt > now) {
        this.#timer = setTimeout(() => this.#serve(), timerMs(this.#goesAt - now))
        return
      }
      this.#booked = undefined
      this.#remove(waiter)
      waiter.resolve()
    }
  }

  #book(waiter: Waiter, now: number): void {
    this.#requests?.take(1, now)
    this.#tokens?.take(waiter.tokens, now)
    this.#booked = waiter
    this.#goesAt = Number.POSITIVE_INFINITY
  }

  #remove(waiter: Waiter): void {
    this.#waiters.delete(waiter)
    this.#countWaiting()
    waiter.signal.removeEventListener('abort', waiter.onAbort)
    if (this.#booked !== waiter) return
    this.#booked = undefined
    const now = machineNow()
    this.#requests?.take(-1, now)
    this.#tokens?.take(-waiter.tokens, now)
  }

  #waitMs(tokens: number, now: number): number {
    return Math.max(this.#requests?.waitMs(1, now) ?? 0, this.#tokens?.waitMs(tokens, now) ?? 0)
  }

  #countWaiting(): void {
    this.#shared.cells.rateWaiting[this.#shared.place] = this.#waiters.size
  }
}

function ownPlace(): RatePlace {
  const cells = {
    requestsFullAt: new BigInt64Array(1),
    tokensFullAt: new BigInt64Array(1),
    rateWaiting: new Int32Array(1),
  }
  return { cells, parties: Int32Array.of(1), place: 0 }
}
