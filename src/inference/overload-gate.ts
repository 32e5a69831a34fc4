import { backoffMs, type Backoff } from '../kit/index.ts'
import { MillraceError } from '../errors/index.ts'
import type { RetryRule } from './retry-table.ts'

/** Proof of having been let through. Shared by all who entered under the same circumstances, so entering is free. */
export interface GateTicket {
  /** How often the gate had closed when it was given. */
  readonly epoch: number
  readonly isProbe: boolean
}

export interface OverloadGateOptions {
  /** Failures in a row, without an answer in between, that close the gate. */
  readonly threshold: number
  /** More than these are never on their way at once, so slow start ends there. */
  readonly maxConcurrency: number
  readonly random: () => number
  readonly onClose: (failures: number) => void
  readonly onReopen: (closedMs: number, parked: number) => void
  readonly probeBackoff?: Backoff
}

interface Parked {
  readonly resolve: (ticket: GateTicket | undefined) => void
  readonly reject: (reason: unknown) => void
  readonly signal: AbortSignal
  readonly onAbort: () => void
}

const defaultProbeBackoff: Backoff = { firstMs: 500, factor: 2, maxMs: 10_000 }
/** A pause the server asks for postpones the next probe by this much at most: one request a minute is no load. */
const maxProbeDelayMs = 60_000
/** How many may go at once when a probe came back well. */
const firstAllowance = 2

/**
 * Stands before one backend and keeps requests from being spent on it while it is overloaded or gone.
 *
 *               threshold failures in a row                probe answered
 *        open ────────────────────────────► waiting ⇄ probing ──────────► recovering ──► open
 *                                              │  (or due, when nobody waits)   │
 *                                              ◄────────────────────────────────┘ threshold failures again
 *
 * While it is closed everybody parks, first come first served, and one of them at a time goes as a probe, less and less
 * often. Failures of probes and of what was on its way when the gate closed are excused. When an answer comes, parked
 * requests are let go two at first and one more with every answer, which doubles them each round trip: no herd.
 * As many park as there are callers; each leaves at once when its signal aborts.
 */
export class OverloadGate {
  readonly #options: OverloadGateOptions
  readonly #backoff: Backoff
  // A Set iterates in insertion order, so the first is the one that has waited longest.
  readonly #parked = new Set<Parked>()
  #state: 'open' | 'waiting' | 'due' | 'probing' | 'recovering' | 'shut' = 'open'
  #ticket: GateTicket = { epoch: 0, isProbe: false }
  #failures = 0
  #probes = 0
  #closedAt = 0
  #timer: NodeJS.Timeout | undefined
  /** While recovering: how many may be on their way, and how many are. */
  #allowance = 0
  #admitted = 0

  constructor(options: OverloadGateOptions) {
    this.#options = options
    this.#backoff = options.probeBackoff ?? defaultProbeBackoff
  }

  get parked(): number {
    return this.#parked.size
  }

  /** Whether the backend answers again and those who wait are being let go. */
  get isRecovering(): boolean {
    return this.#state === 'recovering'
  }

  /** Whether `enter` would give a ticket. */
  get canEnter(): boolean {
    if (this.#state === 'recovering') return this.#admitted < this.#allowance
    return this.#state === 'open' || this.#state === 'due'
  }

  /** A ticket if one may go now; the caller then owes a `leave`. */
  enter(): GateTicket | undefined {
    if (this.#state === 'open') return this.#ticket
    if (!this.canEnter) return undefined
    if (this.#state === 'due') return this.#probe()
    this.#admitted += 1
    return this.#ticket
  }

  /** Waits to be let through. Undefined: look again, another backend answers. */
  park(signal: AbortSignal): Promise<GateTicket | undefined> {
    if (signal.aborted) return Promise.reject(signal.reason)
    if (this.#state === 'shut') return Promise.reject(shutError())
    return new Promise((resolve, reject) => {
      const onAbort = (): void => {
        this.#parked.delete(parked)
        reject(signal.reason)
      }
      const parked: Parked = { resolve, reject, signal, onAbort }
      signal.addEventListener('abort', onAbort, { once: true })
      this.#parked.add(parked)
    })
  }

  /**
   * What came of the request. True: it is excused, the failure lies with the backend and not with the request.
   * `cancelled`: it was never sent, or given up by its caller.
   */
  leave(ticket: GateTicket, result: RetryRule['evidence'] | 'cancelled', retryAfterMs = 0): boolean {
    if (ticket.isProbe) return this.#endProbe(ticket, result, retryAfterMs)
    const isCurrent = ticket.epoch === this.#ticket.epoch
    if (isCurrent && this.#state === 'recovering') this.#admitted -= 1
    if (result === 'answered') this.#onAnswer()
    else if (result === 'overloaded') {
      if (!isCurrent) return true
      this.#failures += 1
      if (this.#failures >= this.#options.threshold) {
        this.#close(retryAfterMs)
        return true
      }
    }
    if (this.#state === 'recovering') this.#release()
    return false
  }

  /** Sends everybody who is parked to look for another backend. */
  dismiss(): void {
    for (const parked of this.#parked) this.#letGo(parked, undefined)
  }

  /** Ends the gate: who is parked is turned away. */
  shut(): void {
    this.#state = 'shut'
    clearTimeout(this.#timer)
    for (const parked of this.#parked) {
      this.#parked.delete(parked)
      parked.signal.removeEventListener('abort', parked.onAbort)
      parked.reject(shutError())
    }
  }

  #close(retryAfterMs: number): void {
    this.#options.onClose(this.#failures)
    this.#ticket = { epoch: this.#ticket.epoch + 1, isProbe: false }
    this.#failures = 0
    this.#probes = 0
    this.#closedAt = performance.now()
    this.#awaitProbe(retryAfterMs)
  }

  #awaitProbe(delayMs: number): void {
    this.#state = 'waiting'
    this.#probes += 1
    const own = backoffMs(this.#backoff, this.#probes, this.#options.random)
    this.#timer = setTimeout(() => this.#onProbeDue(), Math.max(own, Math.min(delayMs, maxProbeDelayMs)))
  }

  #onProbeDue(): void {
    this.#state = 'due'
    const [oldest] = this.#parked
    if (oldest) this.#letGo(oldest, this.#probe())
  }

  #probe(): GateTicket {
    this.#state = 'probing'
    return { epoch: this.#ticket.epoch, isProbe: true }
  }

  #endProbe(ticket: GateTicket, result: RetryRule['evidence'] | 'cancelled', retryAfterMs: number): boolean {
    // Something else that was still on its way may have been answered first.
    const isExpected = this.#state === 'probing' && ticket.epoch === this.#ticket.epoch
    if (!isExpected) {
      if (result === 'answered') this.#onAnswer()
      return result === 'overloaded'
    }
    if (result === 'answered') this.#reopen()
    else if (result === 'cancelled') this.#onProbeDue()
    else this.#awaitProbe(retryAfterMs)
    return result === 'overloaded'
  }

  #onAnswer(): void {
    this.#failures = 0
    if (this.#state === 'recovering') {
      this.#allowance += 1
      if (this.#allowance >= this.#options.maxConcurrency) this.#open()
    } else if (this.#state !== 'open' && this.#state !== 'shut') {
      this.#reopen()
    }
  }

  #reopen(): void {
    clearTimeout(this.#timer)
    this.#state = 'recovering'
    this.#failures = 0
    this.#allowance = firstAllowance
    this.#admitted = 0
    this.#options.onReopen(performance.now() - this.#closedAt, this.#parked.size)
    if (this.#allowance >= this.#options.maxConcurrency) this.#open()
    else this.#release()
  }

  #open(): void {
    this.#state = 'open'
    for (const parked of this.#parked) this.#letGo(parked, this.#ticket)
  }

  #release(): void {
    for (const parked of this.#parked) {
      if (this.#admitted >= this.#allowance) return
      this.#admitted += 1
      this.#letGo(parked, this.#ticket)
    }
  }

  #letGo(parked: Parked, ticket: GateTicket | undefined): void {
    this.#parked.delete(parked)
    parked.signal.removeEventListener('abort', parked.onAbort)
    parked.resolve(ticket)
  }
}

function shutError(): MillraceError {
  return new MillraceError('closed', 'the model was closed while requests were parked')
}
