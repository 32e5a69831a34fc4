import { MillraceError } from '../../errors/index.ts'
import { retryAfterOf } from '../../http/index.ts'
import { AbortScope, timerMs } from '../../kit/index.ts'
import type { ModelConfig } from '../config.ts'

export type WaitLimits = Pick<ModelConfig, 'name' | 'maxWaitMs' | 'maxRateLimitWaitMs'>

/** The shortest `Retry-After` that a caller is told. */
const minRetryAfterMs = 1000

/** Adds up how long one call waits. While the last failure is a 429, that also counts against `maxRateLimitWaitMs`. */
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

  failed(error: MillraceError): void {
    this.#lastFailure = error
    const askedMs = retryAfterOf(error)
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
      this.#scope?.abort(this.#tooLong(isRateLimit, isRateLimit ? maxRateLimitWaitMs : maxWaitMs))
    }, timerMs(ms))
  }

  /** The cause is for the log: the message must not name backends, because clients of a gateway get it. */
  #tooLong(isRateLimit: boolean, limitMs: number): MillraceError {
    const { name } = this.#limits
    const seconds = (limitMs / 1000).toFixed(1)
    const message = isRateLimit
      ? `the backends of ${name} have refused requests with 429 for ${seconds} s; try again later`
      : `no backend of ${name} could take the request within ${seconds} s; try again later`
    const retryAfterMs = Math.max(minRetryAfterMs, Math.ceil(this.#retryAt - performance.now()))
    const data = { status: isRateLimit ? 429 : 503, retryAfterMs }
    const code = isRateLimit ? 'model_rate_limited' : 'model_overloaded'
    return new MillraceError(code, message, { data, cause: this.#lastFailure })
  }
}
