import type { BackendCells } from './shared-limits-cells.ts'
import { TimeCell, machineNow } from './_time-cell.ts'

export type GatePhase = 'open' | 'closed' | 'probing'

const phases: readonly GatePhase[] = ['open', 'closed', 'probing']
const wordCell = 0
const failuresCell = 1
const probesCell = 2
/** Sums of fractions are never quite what they should be. */
const slackMs = 0.002

/**
 * What all workers know about one backend: whether it may be asked, and when to try it again. Phase, prober and the number
 * of closings are one number, the word, so that of several workers who want to change it one succeeds:
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

  /** Read without ceremony, because every request does: a change is seen some nanoseconds late at worst. */
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

  /** Until the next probe may go; not above 0 if it may now. */
  get dueInMs(): number {
    const ms = this.#dueAt.ms - machineNow()
    return ms > slackMs ? ms : 0
  }

  /** Failures in a row, this one included. */
  countFailure(): number {
    return Atomics.add(this.#numbers, failuresCell, 1) + 1
  }

  forgetFailures(): void {
    if (this.#numbers[failuresCell] !== 0) Atomics.store(this.#numbers, failuresCell, 0)
  }

  /** How many probes there will have been since it closed. */
  countProbe(): number {
    return Atomics.add(this.#numbers, probesCell, 1) + 1
  }

  /** From open to closed, until the time is up. False if the word is no longer that: somebody else was faster. */
  close(word: number, forMs: number): boolean {
    const now = machineNow()
    if (!this.#swap(word, wordOf(epochOf(word) + 1, 'closed'))) return false
    // Only whoever closed it says until when. One who reads in between finds the old time, and probes early at worst.
    this.#dueAt.ms = now + forMs
    this.#closedAt.ms = now
    Atomics.store(this.#numbers, failuresCell, 0)
    Atomics.store(this.#numbers, probesCell, 1)
    return true
  }

  /** From closed to probing. */
  probe(word: number, place: number): boolean {
    return this.#swap(word, wordOf(epochOf(word), 'probing', place))
  }

  /** From probing back to closed. */
  closeAgain(word: number, forMs: number): boolean {
    const now = machineNow()
    if (!this.#swap(word, wordOf(epochOf(word), 'closed'))) return false
    this.#dueAt.ms = now + forMs
    return true
  }

  /** To open, whatever it was. False if it was open. */
  reopen(): boolean {
    for (;;) {
      const { word } = this
      if (phaseOf(word) === 'open') return false
      Atomics.store(this.#numbers, failuresCell, 0)
      if (this.#swap(word, wordOf(epochOf(word), 'open'))) return true
    }
  }

  /** The worker at that place is gone: a probe of its will not come back. */
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
