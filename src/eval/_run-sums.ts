import { TimeSlice } from '../kit/index.ts'
import type { RolloutRecord } from '../schema/index.ts'
import type { RunStore } from '../store/index.ts'
import type { RunConfig } from './run-config.ts'
import { RunSpending } from './run-spending.ts'
import { Stopwatch } from './_stopwatch.ts'
import { SummaryAccumulator } from './summary-accumulator.ts'
import { UnreadableRollouts } from './unreadable-rollouts.ts'
import { WorkedTime } from './worked-time.ts'

/** What the results of a run add up to, those of earlier sittings included. */
export class RunSums {
  readonly accumulator: SummaryAccumulator
  readonly unreadable = new UnreadableRollouts()
  /** Runs while this sitting's rollouts do, not while models, tools and workers are opened. */
  readonly work = new Stopwatch()
  readonly #spending = new RunSpending()
  readonly #maxCostUsd: number | null
  #earlierMs = 0

  constructor({ attempts, passThreshold, maxCostUsd }: RunConfig) {
    this.accumulator = new SummaryAccumulator({ attemptsPerTask: attempts, passThreshold })
    this.#maxCostUsd = maxCostUsd
  }

  /** How many rollouts have ended, whether their results can be read or not. */
  get ended(): number {
    return this.accumulator.rollouts + this.unreadable.count
  }

  /** Whether the run has spent what it may. */
  get isSpent(): boolean {
    return this.#maxCostUsd !== null && this.#spending.costUsd >= this.#maxCostUsd
  }

  /** How long all sittings worked. */
  get wallMs(): number {
    return this.#earlierMs + this.work.elapsedMs
  }

  /** Adds the results of earlier sittings, a page per turn of the loop: a large run takes seconds to read. */
  async addEarlier({ run, reader }: RunStore): Promise<void> {
    const worked = new WorkedTime(run.sittings.slice(0, -1))
    for await (const stored of new TimeSlice().over(reader.ended())) {
      worked.noteEnd(stored.endedAt)
      const record = this.unreadable.recordOf(stored)
      if (record) this.accumulator.add(record)
      this.#spending.addEnded(stored, record, reader)
    }
    await this.#spending.addUnaccepted(reader)
    this.#earlierMs = worked.sumMs()
  }

  addResult(record: RolloutRecord): void {
    this.accumulator.add(record)
  }

  /** Adds the cost of an attempt that has ended, whether it is a result or not. */
  addCost(ended: Pick<RolloutRecord, 'id' | 'attempt' | 'cost'>): void {
    this.#spending.add(ended)
  }

  /** The figures that a listing shows, kept with the run so that a listing need not read every result. */
  forListing(): { ended: number; scored: number; score: number | null } {
    const { scored, score } = this.accumulator.snapshot()
    return { ended: this.ended, scored, score: score?.mean ?? null }
  }
}

export function perSecondOf(ended: number, ms: number): number {
  return ms > 0 ? (ended / ms) * 1000 : 0
}
