import { backoffMs, timerMs, type Backoff } from '../../kit/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { sumOf } from './counter.ts'
import { GateCells, epochOf, phaseOf, wordOf } from './_gate-cells.ts'
import type { RetryRule } from '../retry-table.ts'
import { gateIntegers, gateTimes, type BackendCells } from './shared-limits-cells.ts'

/** Proof that a request was let through. Requests that enter between two closings share one ticket, so entering is free. */
export interface GateTicket {
  /** How often the gate had closed when the ticket was given. */
  readonly epoch: number
  readonly isProbe: boolean
}

/** The place of a gate: what it shares with the gates that other workers have before the same backend. */
export interface GatePlace {
  readonly cells: Pick<BackendCells, 'gate' | 'gateTimes' | 'parked'>
  readonly place: number
  /** Makes the other gates call `follow` soon. */
  readonly announce: () => void
}

export interface OverloadGateOptions {
  /** Failures in a row, without an answer in between, that close the gate. */
  readonly threshold: number
  /** How many requests are on their way at once at most: slow start ends there. */
  readonly maxConcurrency: number
  readonly random: () => number
  /** Called when this worker closed the gate, or found the backend answering again. Other workers report their own changes. */
  readonly onClose: (failures: number) => void
  readonly onReopen: (closedMs: number, parked: number) => void
  /** Called when the backend answers again, whichever worker found out. */
  readonly onRecovering?: () => void
  readonly probeBackoff?: Backoff
  /** If missing, the gate is this worker's own. */
  readonly shared?: GatePlace
}

interface Parked {
  readonly resolve: (ticket: GateTicket | undefined) => void
  readonly reject: (reason: unknown) => void
  readonly signal: AbortSignal
  readonly onAbort: () => void
}

const defaultProbeBackoff: Backoff = { firstMs: 500, factor: 2, maxMs: 10_000 }
/** A pause that the server asks for postpones the next probe by this much at most: one request a minute is no load. */
const maxProbeDelayMs = 60_000
/** How many requests may go at once after a probe was answered. */
const firstAllowance = 2
const noWord = -1

/**
 * Stands before one backend and keeps requests from being spent on it while it is overloaded or gone.
 *
 *               threshold failures in a row                probe answered
 *        open ────────────────────────────► closed ⇄ probing ───────────► recovering ──► open
 *                                              ▲                              │
 *                                              └──────────────────────────────┘ threshold failures again
 *
 * While the gate is closed all requests park, first come first served, and one of them at a time goes as a probe, less and less
 * often. Failures of probes and of requests on their way when the gate closed are excused. When an answer comes, parked
 * requests are let go: two at first and one more with every answer, which doubles them each round trip, so there is no herd.
 * There is no bound on how many park; each leaves at once when its signal aborts.
 *
 * Workers share the phase (open, closed or probing), the failures in a row and when the next probe is due: what one
 * learns, all know, and only one of them probes. Parking and slow start are each worker's own.
 */
export class OverloadGate {
  readonly #options: OverloadGateOptions
  readonly #backoff: Backoff
  readonly #shared: GatePlace
  readonly #cells: GateCells
  // A Set iterates in insertion order, so the first is the one that has waited longest.
  readonly #parked = new Set<Parked>()
  #ticket: GateTicket
  /** The word under which every request may enter. Any other word means that the gate has changed. */
  #openWord: number
  /** The word that `follow` saw last. */
  #seenWord: number
  #isShut = false
  #timer: NodeJS.Timeout | undefined
  /** While recovering: how many requests of this worker may be on their way, and how many are. */
  #allowance = 0
  #admitted = 0

  constructor(options: OverloadGateOptions) {
    this.#options = options
    this.#backoff = options.probeBackoff ?? defaultProbeBackoff
    this.#shared = options.shared ?? ownPlace()
    this.#cells = new GateCells(this.#shared.cells)
    const { word } = this.#cells
    this.#ticket = { epoch: epochOf(word), isProbe: false }
    this.#seenWord = word
    this.#openWord = phaseOf(word) === 'open' ? word : noWord
    this.follow()
  }

  get parked(): number {
    return this.#parked.size
  }

  /** Whether the backend answers again and parked requests are being let go. */
  get isRecovering(): boolean {
    const { word } = this.#cells
    return word !== this.#openWord && word === this.#seenWord && phaseOf(word) === 'open' && !this.#isShut
  }

  /** Whether `enter` would give a ticket. */
  get canEnter(): boolean {
    const { word } = this.#cells
    if (word === this.#openWord) return true
    if (this.isRecovering) return this.#admitted < this.#allowance
    return phaseOf(word) === 'closed' && !this.#isShut && this.#cells.dueInMs === 0
  }

  /** A ticket, if a request may go now; the caller then owes a `leave`. */
  enter(): GateTicket | undefined {
    const { word } = this.#cells
    if (word === this.#openWord) return this.#ticket
    if (!this.canEnter) return undefined
    if (phaseOf(word) === 'closed') return this.#probe()
    this.#admitted += 1
    return this.#ticket
  }

  /** Waits for a ticket. Undefined: choose a backend again, because another one answers. */
  park(signal: AbortSignal): Promise<GateTicket | undefined> {
    if (signal.aborted) return Promise.reject(signal.reason)
    if (this.#isShut) return Promise.reject(shutError())
    return new Promise((resolve, reject) => {
      const onAbort = (): void => {
        this.#remove(parked)
        reject(signal.reason)
      }
      const parked: Parked = { resolve, reject, signal, onAbort }
      signal.addEventListener('abort', onAbort, { once: true })
      this.#parked.add(parked)
      this.#countParked()
    })
  }

  /**
   * Takes the result of a request. True if its failure is excused: it lies with the backend and not with the request.
   * `cancelled`: the request was never sent, or was given up by its caller.
   */
  leave(ticket: GateTicket, result: RetryRule['evidence'] | 'cancelled', retryAfterMs = 0): boolean {
    if (ticket.isProbe) return this.#endProbe(ticket, result, retryAfterMs)
    const { word } = this.#cells
    if (word === this.#openWord && result === 'answered') {
      this.#cells.forgetFailures()
      return false
    }
    const isCurrent = ticket.epoch === epochOf(word)
    if (isCurrent && this.isRecovering) this.#admitted -= 1
    if (result === 'answered') this.#onAnswer()
    else if (result === 'overloaded') {
      if (!isCurrent) return true
      const failures = this.#cells.countFailure()
      if (failures >= this.#options.threshold) {
        this.#close(word, failures, retryAfterMs)
        return true
      }
    }
    if (this.isRecovering) this.#release()
    return false
  }

  /** Sends all parked requests to look for another backend. */
  dismiss(): void {
    for (const parked of this.#parked) this.#letGo(parked, undefined)
  }

  /** Brings this gate in line with the shared word, which this worker or another one has changed. */
  follow(): void {
    const { word } = this.#cells
    if (this.#isShut || (word === this.#seenWord && phaseOf(word) === 'open')) return
    clearTimeout(this.#timer)
    this.#seenWord = word
    const phase = phaseOf(word)
    if (phase === 'open') this.#recover(word)
    if (phase !== 'closed') return
    const { dueInMs } = this.#cells
    if (dueInMs > 0) this.#timer = setTimeout(() => this.follow(), timerMs(dueInMs))
    else this.#sendProbe()
  }

  /** Ends the gate in this worker: parked requests are rejected. */
  shut(): void {
    this.#isShut = true
    this.#openWord = noWord
    clearTimeout(this.#timer)
    for (const parked of this.#parked) {
      this.#remove(parked)
      parked.reject(shutError())
    }
  }

  #close(word: number, failures: number, retryAfterMs: number): void {
    if (!this.#cells.close(word, this.#probeDelayMs(1, retryAfterMs))) return
    // A gate that is shut admits nothing any more, so its closing is not reported.
    if (!this.#isShut) this.#options.onClose(failures)
    this.#changed()
  }

  #probeDelayMs(probes: number, askedMs: number): number {
    const own = backoffMs(this.#backoff, probes, this.#options.random)
    return Math.max(own, Math.min(askedMs, maxProbeDelayMs))
  }

  #probe(): GateTicket | undefined {
    const { word } = this.#cells
    if (phaseOf(word) !== 'closed' || !this.#cells.probe(word, this.#shared.place)) return undefined
    clearTimeout(this.#timer)
    return { epoch: epochOf(word), isProbe: true }
  }

  #sendProbe(): void {
    const [oldest] = this.#parked
    const ticket = oldest && this.#probe()
    if (ticket) this.#letGo(oldest, ticket)
  }

  #endProbe(ticket: GateTicket, result: RetryRule['evidence'] | 'cancelled', retryAfterMs: number): boolean {
    const word = wordOf(ticket.epoch, 'probing', this.#shared.place)
    if (result === 'answered') this.#onAnswer()
    // A request that was still on its way may have been answered first and opened the gate: then nothing is to be done.
    else if (word === this.#cells.word) {
      const delayMs = result === 'cancelled' ? 0 : this.#probeDelayMs(this.#cells.countProbe(), retryAfterMs)
      if (this.#cells.closeAgain(word, delayMs)) this.#changed()
    }
    return result === 'overloaded'
  }

  #onAnswer(): void {
    this.#cells.forgetFailures()
    const { word } = this.#cells
    if (word === this.#openWord || this.#isShut) return
    if (this.isRecovering) {
      this.#allowance += 1
      if (this.#allowance >= this.#options.maxConcurrency) this.#open(word)
    } else if (this.#cells.reopen()) {
      this.#options.onReopen(this.#cells.closedMs, this.#parkedAnywhere())
      this.#changed()
    }
  }

  /** Follows a change in this worker at once; the others follow when the announcement reaches them. */
  #changed(): void {
    this.follow()
    this.#shared.announce()
  }

  #recover(word: number): void {
    this.#ticket = { epoch: epochOf(word), isProbe: false }
    this.#allowance = firstAllowance
    this.#admitted = 0
    this.#options.onRecovering?.()
    if (this.#allowance >= this.#options.maxConcurrency) this.#open(word)
    else this.#release()
  }

  #open(word: number): void {
    this.#openWord = word
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
    this.#remove(parked)
    parked.resolve(ticket)
  }

  #remove(parked: Parked): void {
    this.#parked.delete(parked)
    this.#countParked()
    parked.signal.removeEventListener('abort', parked.onAbort)
  }

  #countParked(): void {
    this.#shared.cells.parked[this.#shared.place] = this.#parked.size
  }

  #parkedAnywhere(): number {
    return sumOf(this.#shared.cells.parked)
  }
}

function ownPlace(): GatePlace {
  return {
    cells: {
      gate: new Int32Array(gateIntegers),
      gateTimes: new BigInt64Array(gateTimes),
      parked: new Int32Array(1),
    },
    place: 0,
    announce: () => undefined,
  }
}

function shutError(): MillraceError {
  return new MillraceError('closed', 'the model was closed while requests were parked')
}
