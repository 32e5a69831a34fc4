import { outcomeNames, outcomes, type Outcome, type RolloutRecord, type Usage } from '../../schema/index.ts'
import { ClusteredMean } from '../clustered-mean.ts'
import type { ScoreEstimate } from '../progress.ts'
import { studentT95 } from '../student-t.ts'
import type { Summary } from '../summary.ts'
import { SummaryAccumulator, type RolloutSummary } from '../summary-accumulator.ts'

/** A mean, and how far it may be off; NaN with fewer than two tasks. */
export interface RescoredScore extends ScoreEstimate {
  readonly standardError: number
}

/** The scores of a run before and after its rollouts were scored again. */
export interface RescoreSummary {
  readonly run: string
  readonly environment: string
  readonly rollouts: number
  readonly before: RescoredSide
  readonly after: RescoredSide
  /** Of the rollouts that have a reward on both sides. */
  readonly change: RescoredScore | undefined
  /** How many have another reward than before. */
  readonly changed: number
  /** Rollouts that are damaged, the first of them by name. They are in no figure here. */
  readonly unreadable?: NonNullable<Summary['unreadable']>
  /** Rollouts whose tasks are not what they were, or are gone: they keep no score. */
  readonly withoutTask: number
  /** Rollouts that could not have a score when the run was made either, by how they ended, and why the first of them did. */
  readonly unscorable: readonly { readonly outcome: Outcome; readonly count: number; readonly message: string }[]
  /** Rewards that failed, by what they said; the most frequent first, and no more than a few. */
  readonly failures: readonly { readonly message: string; readonly count: number }[]
  /** What judges that were asked for it have used. */
  readonly judgeUsage: Usage
  readonly judgeCost: number | null
  readonly wallMs: number
  /** What the scores should be read with. */
  readonly notices: readonly string[]
}

export interface RescoredSide {
  readonly scored: number
  readonly score: RescoredScore | undefined
  readonly components: RolloutSummary['components']
}

/** Messages of failures that are told apart; the others are one. */
const maxMessages = 20

/** Adds up the two sides as rollouts are scored, in memory that does not grow with the run. */
export class RescoreAccumulator {
  readonly #before: SummaryAccumulator
  readonly #after: SummaryAccumulator
  readonly #change = new ClusteredMean()
  readonly #failures = new Map<string, number>()
  #changed = 0
  #withoutTask = 0

  constructor(options: { readonly attemptsPerTask: number; readonly passThreshold: number }) {
    this.#before = new SummaryAccumulator(options)
    this.#after = new SummaryAccumulator(options)
  }

  /** All rollouts of one task. */
  addTask(pairs: readonly { readonly before: RolloutRecord; readonly after: RolloutRecord }[]): void {
    let sum = 0
    let count = 0
    for (const { before, after } of pairs) {
      this.#before.add(before)
      this.#after.add(after)
      if (before.reward !== after.reward) this.#changed += 1
      if (after.outcome === 'reward_error' && after.error) this.#addFailure(after.error.message)
      if (before.reward === null || after.reward === null) continue
      sum += after.reward - before.reward
      count += 1
    }
    this.#change.add(sum, count)
  }

  addWithoutTask(record: RolloutRecord): void {
    this.#before.add(record)
    this.#withoutTask += 1
  }

  summary(
    facts: Pick<
      RescoreSummary,
      'run' | 'environment' | 'unreadable' | 'judgeUsage' | 'judgeCost' | 'wallMs' | 'notices'
    >,
  ): RescoreSummary {
    return {
      ...facts,
      rollouts: this.#before.rollouts,
      before: sideOf(this.#before),
      after: sideOf(this.#after),
      change: scoreOf(this.#change.estimate()),
      changed: this.#changed,
      withoutTask: this.#withoutTask,
      unscorable: unscorableOf(this.#before.snapshot()),
      failures: Array.from(this.#failures, ([message, count]) => ({ message, count })).toSorted(
        (one, other) => other.count - one.count,
      ),
    }
  }

  #addFailure(message: string): void {
    const isKnown = this.#failures.has(message) || this.#failures.size < maxMessages
    const key = isKnown ? message : 'others'
    this.#failures.set(key, (this.#failures.get(key) ?? 0) + 1)
  }
}

/** What infrastructure ended, or was no task, has no reward, whatever the rewards are now. */
export function isScorable(outcome: Outcome): boolean {
  return outcomes[outcome].scored || outcomes[outcome].rule === 'rescore'
}

function unscorableOf(before: RolloutSummary): RescoreSummary['unscorable'] {
  return outcomeNames.flatMap((outcome) => {
    const count = before.outcomes[outcome]
    return count === 0 || isScorable(outcome) ? [] : { outcome, count, message: before.reasons[outcome] ?? '' }
  })
}

function sideOf(accumulator: SummaryAccumulator): RescoredSide {
  const { scored, score, components } = accumulator.snapshot()
  return { scored, score: scoreOf(score), components }
}

function scoreOf(estimate: ScoreEstimate | undefined): RescoredScore | undefined {
  return estimate && { ...estimate, standardError: (estimate.high - estimate.mean) / studentT95(estimate.tasks - 1) }
}
