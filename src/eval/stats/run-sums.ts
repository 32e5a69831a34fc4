import { TimeSlice } from '../../kit/index.ts'
import type { RolloutRecord } from '../../schema/index.ts'
import { type BareRecord, type RunFile, type RunStore, type StoredRollout, unlessDamaged } from '../../store/index.ts'
import type { RunConfig } from '../run-config.ts'
import type { Summary } from '../summary.ts'
import { RunSpending } from './spending.ts'
import { SummaryAccumulator } from './summary-accumulator.ts'

/** What the results of a run add up to, those of earlier launches included. */
export class RunSums {
  readonly accumulator: SummaryAccumulator
  readonly unreadable = new UnreadableRollouts()
  /** Runs while this launch's rollouts do, not while models, tools and workers are opened. */
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

  get isSpent(): boolean {
    return this.#maxCostUsd !== null && this.#spending.costUsd >= this.#maxCostUsd
  }

  get wallMs(): number {
    return this.#earlierMs + this.work.elapsedMs
  }

  /** Adds the results of earlier launches, a page per turn of the loop: a large run takes seconds to read. */
  async addEarlier({ run, reader }: RunStore): Promise<void> {
    const worked = new ActiveTime(run.launches.slice(0, -1))
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

/** How many damaged results are named; all are counted. */
const maxNamed = 20

/** Results whose records are damaged, found while all are read: a damaged one is left out, and the others are used. */
export class UnreadableRollouts {
  readonly #ids: string[] = []
  #count = 0

  get count(): number {
    return this.#count
  }

  /** The record of a result; undefined if it is damaged, which is noted. */
  recordOf(stored: StoredRollout): BareRecord | undefined {
    const record = unlessDamaged(() => stored.record)
    if (!record) this.add(stored.rollout)
    return record
  }

  add(rollout: string): void {
    this.#count += 1
    if (this.#ids.length < maxNamed) this.#ids.push(rollout)
  }

  snapshot(): Pick<Summary, 'unreadable'> {
    return this.#count === 0 ? {} : { unreadable: { rollouts: this.#count, ids: [...this.#ids] } }
  }
}

/** How long a run was worked on in its launches. A launch that was cut off counts up to its last ended rollout. */
export class ActiveTime {
  readonly #launches: RunFile['launches']
  readonly #starts: readonly number[]
  readonly #lastEnds: number[] = []

  constructor(launches: RunFile['launches']) {
    this.#launches = launches
    this.#starts = launches.map(({ startedAt }) => Date.parse(startedAt))
  }

  noteEnd(at: number): void {
    const index = this.#starts.findLastIndex((start) => start <= at)
    if (index >= 0) this.#lastEnds[index] = Math.max(this.#lastEnds[index] ?? 0, at)
  }

  /** The sum over all launches. If the last one still goes on, it counts until `now`. */
  sumMs(now?: number): number {
    let sum = 0
    for (const [index, launch] of this.#launches.entries()) {
      const start = this.#starts[index] ?? 0
      const isLast = index === this.#launches.length - 1
      const cutOffAt = (isLast ? now : undefined) ?? this.#lastEnds[index] ?? start
      const end = launch.endedAt === undefined ? cutOffAt : Date.parse(launch.endedAt)
      sum += launch.workedMs ?? Math.max(0, end - start)
    }
    return sum
  }
}

class Stopwatch {
  #startedAt: number | undefined
  #stoppedAt: number | undefined

  get elapsedMs(): number {
    return this.#startedAt === undefined ? 0 : (this.#stoppedAt ?? performance.now()) - this.#startedAt
  }

  start(): void {
    this.#startedAt = performance.now()
  }

  stop(): void {
    this.#stoppedAt = performance.now()
  }
}
