import type { BackendCells } from './shared-limits-cells.ts'
import { TimeCell, machineNow } from './_time-cell.ts'

export type GatePhase = 'open' | 'closed' | 'probing'

const phases: readonly GatePhase[] = ['open', 'closed', 'probing']
const wordCell = 0
const failuresCell = 1
const probesCell = 2
/** Times are sums of fractions and may be off by a rounding error; differences up to this count as none. */
const slackMs = 0.002

/**
 * What all workers know about one backend: whether it may be asked, and when to probe it again. Phase, prober and the number
 * of closings are packed into one number, the word, so that only one of several workers that change it at once succeeds:
 *
 *    closings (20 bits) │ who probes (8) │ phase (2)
 */
export class GateCells {
  readonly #numbers: Int32Array
  readonly #dueAt: TimeCell
  readonly #closedAt: TimeCell

  constructor({ gate, gateTimes }: Pick<BackendCells, 'gate' | 'gateTimes'>) {
    this.#numbers = gate
    this.#dueAt = new TimeCell(gateTimes.subarray(0, 1))
    this.#closedAt = new TimeCell(gateTimes.subarray(1, 2))
  }

  /** The word is read without atomics, because every request reads it: a change is seen some nanoseconds late at worst. */
  get word(): number {
    return this.#numbers[wordCell] as number
  }

  get isProbing(): boolean {
    return phaseOf(this.word) === 'probing'
  }

  /** Whether nobody may go now, not even as a probe. */
  get isShut(): boolean {
    const phase = phaseOf(this.word)
    return phase === 'probing' || (phase === 'closed' && this.dueInMs > 0)
  }

  get closedMs(): number {
    return machineNow() - this.#closedAt.ms
  }

  /** Milliseconds until the next probe may go; 0 if it may go now. */
  get dueInMs(): number {
    const ms = this.#dueAt.ms - machineNow()
    return ms > slackMs ? ms : 0
  }

  /** Counts a failure, and returns how many there were in a row. */
  countFailure(): number {
    return Atomics.add(this.#numbers, failuresCell, 1) + 1
  }

  forgetFailures(): void {
    if (this.#numbers[failuresCell] !== 0) Atomics.store(this.#numbers, failuresCell, 0)
  }

  /** Counts a probe, and returns the number of the next one since the gate closed. */
  countProbe(): number {
    return Atomics.add(this.#numbers, probesCell, 1) + 1
  }

  /** Takes the gate from open to closed, for that long. False if the word has changed meanwhile: another worker was faster. */
  close(word: number, forMs: number): boolean {
    const now = machineNow()
    if (!this.#swap(word, wordOf(epochOf(word) + 1, 'closed'))) return false
    // Only the worker that closed the gate sets the times. A worker that reads in between finds the old time, and probes
    // early at worst.
    this.#dueAt.ms = now + forMs
    this.#closedAt.ms = now
    Atomics.store(this.#numbers, failuresCell, 0)
    Atomics.store(this.#numbers, probesCell, 1)
    return true
  }

  /** Takes the gate from closed to probing. False if another worker was faster. */
  probe(word: number, place: number): boolean {
    return this.#swap(word, wordOf(epochOf(word), 'probing', place))
  }

  /** Takes the gate from probing back to closed. False if another worker was faster. */
  closeAgain(word: number, forMs: number): boolean {
    const now = machineNow()
    if (!this.#swap(word, wordOf(epochOf(word), 'closed'))) return false
    this.#dueAt.ms = now + forMs
    return true
  }

  /** Opens the gate, from any phase. False if it was open already. */
  reopen(): boolean {
    for (;;) {
      const { word } = this
      if (phaseOf(word) === 'open') return false
      Atomics.store(this.#numbers, failuresCell, 0)
      if (this.#swap(word, wordOf(epochOf(word), 'open'))) return true
    }
  }

  /** The worker at that place is gone: if it was probing, the gate goes back to closed, because its probe will not come back. */
  reclaim(place: number): boolean {
    const { word } = this
    return word === wordOf(epochOf(word), 'probing', place) && this.closeAgain(word, 0)
  }

  #swap(from: number, to: number): boolean {
    return Atomics.compareExchange(this.#numbers, wordCell, from, to) === from
  }
}

export const mostPlaces = 256

export function wordOf(epoch: number, phase: GatePhase, place = 0): number {
  return ((epoch & 0xfffff) << 10) | (place << 2) | phases.indexOf(phase)
}

export function epochOf(word: number): number {
  return word >> 10
}

export function phaseOf(word: number): GatePhase {
  return phases[word & 3] as GatePhase
}
