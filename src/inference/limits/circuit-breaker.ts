import { MillraceError } from '../../errors/index.ts'
import { type Backoff, backoffMs, timerMs, WaitList } from '../../kit/index.ts'
import type { RetryRule } from '../model/retry.ts'

/** Proof that a request may be sent. Requests that enter between two openings share one pass, so entering is free. */
export interface BreakerPass {
  /** How often the breaker had opened when the pass was given. */
  readonly epoch: number
  readonly isProbe: boolean
}

interface CircuitBreakerOptions {
  /** Failures in a row, without an answer in between, that open the breaker. */
  readonly threshold: number
  /** How many requests are on their way at once at most: slow start ends there. */
  readonly maxConcurrency: number
  readonly random: () => number
  /** Called when a failure opens the breaker, and when an answer lets it recover; not for `follow`. */
  readonly onOpen: (failures: number) => void
  readonly onRecover: (openMs: number, parked: number) => void
  /** Called when the backend answers again, whichever worker found out. */
  readonly onRecovering?: () => void
  readonly probeBackoff?: Backoff
}

const defaultProbeBackoff: Backoff = { firstMs: 500, factor: 2, maxMs: 10_000 }
/** A pause that the server asks for postpones the next probe by this much at most: one request a minute is no load. */
const maxProbeDelayMs = 60_000
/** How many requests may go at once after a probe was answered. */
const firstAllowance = 2
/** Times are sums of fractions and may be off by a rounding error; differences up to this count as none. */
const slackMs = 0.002

/**
 * Stands before one backend and keeps requests from being spent on it while it is overloaded or gone.
 *
 *               threshold failures in a row                probe answered
 *      closed ────────────────────────────► open ⇄ half-open ───────────► recovering ──► closed
 *                                            ▲                                │
 *                                            └────────────────────────────────┘ threshold failures again
 *
 * While the breaker is open all requests park, first come first served, and one of them at a time goes as a probe, less and less
 * often. Failures of probes and of requests on their way when the breaker opened are excused. When an answer comes, parked
 * requests are let go: two at first and one more with every answer, which doubles them each round trip, so there is no herd.
 * There is no bound on how many park; each leaves at once when its signal aborts.
 *
 * Each worker has a breaker of its own before a backend, and probes by itself. `follow` tells it that
 * another worker's breaker opened or recovered.
 */
export class CircuitBreaker {
  readonly #options: CircuitBreakerOptions
  #phase: 'closed' | 'open' | 'half-open' | 'recovering' = 'closed'
  #isShut = false
  readonly #parked = new WaitList<BreakerPass | undefined>()
  #pass: BreakerPass = { epoch: 0, isProbe: false }
  #epoch = 0
  #failures = 0
  /** The number of the next probe since the breaker opened. */
  #probes = 1
  #openedAt = 0
  #dueAt = 0
  #timer: NodeJS.Timeout | undefined
  /** While recovering: how many requests may be on their way, and how many are. */
  #allowance = 0
  #admitted = 0

  constructor(options: CircuitBreakerOptions) {
    this.#options = options
  }

  get parked(): number {
    return this.#parked.size
  }

  get isOpen(): boolean {
    return this.#phase === 'open' || this.#phase === 'half-open'
  }

  get isProbing(): boolean {
    return this.#phase === 'half-open'
  }

  /** Whether the backend answers again and parked requests are being let go. */
  get isRecovering(): boolean {
    return this.#phase === 'recovering' && !this.#isShut
  }

  /** Milliseconds until the next probe may go; 0 if it may go now. */
  get dueInMs(): number {
    const ms = this.#dueAt - performance.now()
    return ms > slackMs ? ms : 0
  }

  get canEnter(): boolean {
    if (this.#isShut) return false
    if (this.#phase === 'recovering') return this.#admitted < this.#allowance
    return this.#phase === 'closed' || (this.#phase === 'open' && this.dueInMs === 0)
  }

  /** A pass, if a request may go now; the caller then owes a `leave`. */
  enter(): BreakerPass | undefined {
    if (!this.canEnter) return undefined
    if (this.#phase === 'open') return this.#probe()
    if (this.#phase === 'recovering') this.#admitted += 1
    return this.#pass
  }

  /** Waits for a pass. Undefined: choose a backend again, because another one answers. */
  park(signal: AbortSignal): Promise<BreakerPass | undefined> {
    if (signal.aborted) return Promise.reject(signal.reason)
    if (this.#isShut) return Promise.reject(shutError())
    return this.#parked.wait(signal)
  }

  /** True if the failure is excused: it lies with the backend. `cancelled`: never sent, or abandoned by its caller. */
  leave(pass: BreakerPass, result: RetryRule['evidence'] | 'cancelled', retryAfterMs = 0): boolean {
    if (pass.isProbe) return this.#endProbe(pass, result, retryAfterMs)
    const isCurrent = pass.epoch === this.#epoch
    if (isCurrent && this.isRecovering) this.#admitted -= 1
    if (result === 'answered') this.#onAnswer()
    else if (result === 'overloaded') {
      if (!isCurrent) return true
      this.#failures += 1
      if (this.#failures >= this.#options.threshold) {
        this.#onOverload(retryAfterMs)
        return true
      }
    }
    if (this.isRecovering) this.#release()
    return false
  }

  dismiss(): void {
    this.#parked.resolveAll(undefined)
  }

  /** Another worker's breaker before this backend opened for that long; undefined: it recovers. */
  follow(openForMs: number | undefined): void {
    if (this.#isShut || this.isOpen === (openForMs !== undefined)) return
    if (openForMs === undefined) this.#recover()
    else this.#open(openForMs)
  }

  shut(): void {
    this.#isShut = true
    clearTimeout(this.#timer)
    this.#parked.rejectAll(shutError)
  }

  #onOverload(retryAfterMs: number): void {
    const failures = this.#failures
    // A breaker that is shut admits nothing any more, so its opening is not reported.
    if (this.#isShut) return
    this.#open(this.#probeDelayMs(1, retryAfterMs))
    this.#options.onOpen(failures)
  }

  #open(forMs: number): void {
    this.#epoch += 1
    this.#failures = 0
    this.#probes = 1
    this.#openedAt = performance.now()
    this.#openUntilProbe(forMs)
  }

  #openUntilProbe(forMs: number): void {
    this.#phase = 'open'
    this.#dueAt = performance.now() + forMs
    clearTimeout(this.#timer)
    if (forMs > 0) this.#timer = setTimeout(() => this.#sendProbe(), timerMs(forMs))
    else this.#sendProbe()
  }

  #probeDelayMs(probes: number, askedMs: number): number {
    const own = backoffMs(this.#options.probeBackoff ?? defaultProbeBackoff, probes, this.#options.random)
    return Math.max(own, Math.min(askedMs, maxProbeDelayMs))
  }

  #probe(): BreakerPass {
    this.#phase = 'half-open'
    clearTimeout(this.#timer)
    return { epoch: this.#epoch, isProbe: true }
  }

  #sendProbe(): void {
    if (this.#parked.size > 0) this.#parked.resolveFirst(this.#probe())
  }

  #endProbe(pass: BreakerPass, result: RetryRule['evidence'] | 'cancelled', retryAfterMs: number): boolean {
    if (result === 'answered') this.#onAnswer()
    // A request that was still on its way may have been answered first, and the breaker recovers already: then nothing is to be done.
    else if (this.#phase === 'half-open' && pass.epoch === this.#epoch && !this.#isShut) {
      this.#probes += 1
      this.#openUntilProbe(result === 'cancelled' ? 0 : this.#probeDelayMs(this.#probes, retryAfterMs))
    }
    return result === 'overloaded'
  }

  #onAnswer(): void {
    this.#failures = 0
    if (this.#phase === 'closed' || this.#isShut) return
    if (this.#phase === 'recovering') {
      this.#allowance += 1
      if (this.#allowance >= this.#options.maxConcurrency) this.#close()
    } else {
      const parked = this.#parked.size
      this.#recover()
      this.#options.onRecover(performance.now() - this.#openedAt, parked)
    }
  }

  #recover(): void {
    clearTimeout(this.#timer)
    this.#phase = 'recovering'
    this.#failures = 0
    this.#pass = { epoch: this.#epoch, isProbe: false }
    this.#allowance = firstAllowance
    this.#admitted = 0
    this.#options.onRecovering?.()
    if (this.#allowance >= this.#options.maxConcurrency) this.#close()
    else this.#release()
  }

  #close(): void {
    this.#phase = 'closed'
    this.#parked.resolveAll(this.#pass)
  }

  #release(): void {
    while (this.#admitted < this.#allowance && this.#parked.resolveFirst(this.#pass)) this.#admitted += 1
  }
}

function shutError(): MillraceError {
  return new MillraceError('closed', 'the model was closed while requests waited for its backends')
}
