import { MillraceError } from '../errors/index.ts'
import { AbortScope, timerMs } from '../kit/index.ts'
import { askedDelayMs } from './asked-delay.ts'
import type { ModelConfig } from './model-config.ts'

/** The limits of `CallWait`. A limit that is missing does not exist. */
export type WaitLimits = Pick<ModelConfig, 'name' | 'maxWaitMs' | 'maxRateLimitWaitMs'>

/** The shortest `Retry-After` that a caller is told. */
const minRetryAfterMs = 1000

/**
 * Adds up how long one call waits: for a permit, a rate limit, its next try, or parked. Time on the wire does not count.
 * While the last known failure of the backend is a 429, the wait also counts against `maxRateLimitWaitMs`.
 */
export class CallWait {
  readonly #limits: WaitLimits
  readonly #caller: AbortSignal
  #scope: AbortScope | undefined
  #timer: NodeJS.Timeout | undefined
  #since = 0
  #waitedMs = 0
  #rateLimitedMs = 0
  #lastFailure: MillraceError | undefined
  /** When the backend that refused the call last may be asked again. */
  #retryAt = 0

  constructor(limits: WaitLimits, caller: AbortSignal) {
    this.#limits = limits
    this.#caller = caller
  }

  /** Aborts when the caller gives the call up, or when the call has waited for as long as it may. */
  get signal(): AbortSignal {
    return this.#scope?.signal ?? this.#caller
  }

  start(): void {
    const { maxWaitMs, maxRateLimitWaitMs } = this.#limits
    if (maxWaitMs === undefined && maxRateLimitWaitMs === undefined) return
    this.#scope = new AbortScope(this.#caller)
    this.#since = performance.now()
    this.#arm()
  }

  stop(): void {
    if (!this.#scope) return
    this.#count()
    clearTimeout(this.#timer)
    this.#scope[Symbol.dispose]()
    this.#scope = undefined
  }

  /** A try failed. */
  failed(error: MillraceError): void {
    this.#lastFailure = error
    const askedMs = askedDelayMs(error)
    if (askedMs !== undefined) this.#retryAt = performance.now() + askedMs
  }

  /** The call, which waits already, is parked for a backend that failed with this error last. */
  parked(error: MillraceError): void {
    if (this.#scope) this.#count()
    this.#lastFailure = error
    if (this.#scope) this.#arm()
  }

  get #isRateLimited(): boolean {
    return this.#lastFailure?.code === 'model_rate_limited'
  }

  /** Adds the time since the last count. */
  #count(): void {
    const now = performance.now()
    const ms = now - this.#since
    this.#since = now
    this.#waitedMs += ms
    if (this.#isRateLimited) this.#rateLimitedMs += ms
  }

  #arm(): void {
    clearTimeout(this.#timer)
    const { maxWaitMs = Infinity, maxRateLimitWaitMs = Infinity } = this.#limits
    const leftMs = maxWaitMs - this.#waitedMs
    const rateLimitLeftMs = this.#isRateLimited ? maxRateLimitWaitMs - this.#rateLimitedMs : Infinity
    const isRateLimit = rateLimitLeftMs < leftMs
    const ms = isRateLimit ? rateLimitLeftMs : leftMs
    if (ms === Infinity) return
    this.#timer = setTimeout(() => {
      this.#scope?.abort(isRateLimit ? this.#rateLimited(maxRateLimitWaitMs) : this.#waitedTooLong(maxWaitMs))
    }, timerMs(ms))
  }

  /** The cause is for the log: the message must not name backends, because clients of a gateway get it. */
  #waitedTooLong(maxWaitMs: number): MillraceError {
    const message = `no backend of ${this.#limits.name} could take the request within ${seconds(maxWaitMs)} s; try again later`
    return new MillraceError('model_overloaded', message, { data: this.#data(503), cause: this.#lastFailure })
  }

  #rateLimited(maxRateLimitWaitMs: number): MillraceError {
    const message = `the backends of ${this.#limits.name} have refused requests with 429 for ${seconds(maxRateLimitWaitMs)} s; try again later`
    return new MillraceError('model_rate_limited', message, { data: this.#data(429), cause: this.#lastFailure })
  }

  #data(status: number): { readonly status: number; readonly retryAfterMs: number } {
    return { status, retryAfterMs: Math.max(minRetryAfterMs, Math.ceil(this.#retryAt - performance.now())) }
  }
}

function seconds(ms: number): string {
  return (ms / 1000).toFixed(1)
}
