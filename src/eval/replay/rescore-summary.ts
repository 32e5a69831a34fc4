import { outcomeNames, outcomes, type Outcome, type RolloutRecord, type Usage } from '../../schema/index.ts'
import { ClusteredMean, isBinaryReward, type ScoreEstimate } from '../stats/clustered-mean.ts'
import type { RolloutSummary, Summary } from '../summary.ts'
import { SummaryAccumulator, type EndedRollout } from '../stats/summary-accumulator.ts'

/** The scores of a run before and after its rollouts were scored again. */
export interface RescoreSummary {
  readonly run: string
  readonly environment: string
  readonly rollouts: number
  readonly before: RescoredSide
  readonly after: RescoredSide
  /** The change over the rollouts that have a reward on both sides. */
  readonly change: ScoreEstimate | undefined
  /** How many rollouts have another reward than before. */
  readonly changed: number
  /** Damaged rollouts, the first of them by name. They are in no figure here. */
  readonly unreadable?: NonNullable<Summary['unreadable']>
  /** Rollouts whose tasks have changed, or are gone and not kept: they have no score. */
  readonly withoutTask: number
  /** Rollouts scored with the row that the run keeps of their task: it is generated, came with a request, or is gone. */
  readonly withStoredTask: number
  /** Rollouts that could have no score in the run either, by outcome, with the reason of the first. */
  readonly unscorable: readonly { readonly outcome: Outcome; readonly count: number; readonly message: string }[]
  /** Failed rewards by message; the most frequent first, and no more than a few. */
  readonly failures: readonly { readonly message: string; readonly count: number }[]
  readonly judgeUsage: Usage
  readonly judgeCost: number | null
  readonly wallMs: number
  /** Why the scores may be wrong. */
  readonly notices: readonly string[]
}

export interface RescoredSide {
  readonly scored: number
  readonly score: ScoreEstimate | undefined
  readonly components: RolloutSummary['components']
}

/** How many messages of failures are told apart; further ones are counted together. */
const maxMessages = 20

/** Adds up the two sides as rollouts are scored, in memory that does not grow with the run. */
export class RescoreAccumulator {
  readonly #before: SummaryAccumulator
  readonly #after: SummaryAccumulator
  readonly #change = new ClusteredMean()
  readonly #failures = new Map<string, number>()
  #isBinary = true
  #changed = 0
  #withoutTask = 0
  #withStoredTask = 0

  constructor(options: {
    readonly attemptsPerTask: number
    readonly passThreshold: number
    readonly isServed?: boolean
  }) {
    this.#before = new SummaryAccumulator(options)
    this.#after = new SummaryAccumulator(options)
  }

  /** All rollouts of one task. `isStored`: they were scored with the row that the run keeps. */
  addTask(pairs: readonly { readonly before: EndedRollout; readonly after: EndedRollout }[], isStored = false): void {
    let sum = 0
    let count = 0
    for (const { before, after } of pairs) {
      this.#before.add(before)
      this.#after.add(after)
      if (before.reward !== after.reward) this.#changed += 1
      if (isStored && isScorable(before)) this.#withStoredTask += 1
      if (after.outcome === 'reward_error' && after.error) this.#addFailure(after.error.message)
      if (before.reward === null || after.reward === null) continue
      sum += after.reward - before.reward
      count += 1
      this.#isBinary &&= isBinaryReward(before.reward) && isBinaryReward(after.reward)
    }
    // A change may be -1, too.
    this.#change.add({ sum, count, isBinary: false })
  }

  addWithoutTask(record: EndedRollout): void {
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
      change: this.#changeEstimate(),
      changed: this.#changed,
      withoutTask: this.#withoutTask,
      withStoredTask: this.#withStoredTask,
      unscorable: unscorableOf(this.#before.snapshot()),
      failures: Array.from(this.#failures, ([message, count]) => ({ message, count })).toSorted(
        (one, other) => other.count - one.count,
      ),
    }
  }

  /** Rewards of 0 and 1 cannot change by more than 1, so the interval ends there. */
  #changeEstimate(): ScoreEstimate | undefined {
    const estimate = this.#change.estimate()
    if (!estimate || !this.#isBinary) return estimate
    return { ...estimate, low: Math.max(-1, estimate.low), high: Math.min(1, estimate.high) }
  }

  #addFailure(message: string): void {
    const isKnown = this.#failures.has(message) || this.#failures.size < maxMessages
    const key = isKnown ? message : 'others'
    this.#failures.set(key, (this.#failures.get(key) ?? 0) + 1)
  }
}

/** Whether it can have a reward. One that infrastructure ended, that had no valid task, or that was asked for without, never has. */
export function isScorable({ outcome, unscored }: Pick<RolloutRecord, 'outcome' | 'unscored'>): boolean {
  return !unscored && (outcomes[outcome].scored || outcomes[outcome].rule === 'rescore')
}

function unscorableOf(before: RolloutSummary): RescoreSummary['unscorable'] {
  return outcomeNames.flatMap((outcome) => {
    const count = before.outcomes[outcome]
    return count === 0 || isScorable({ outcome }) ? [] : { outcome, count, message: before.reasons[outcome] ?? '' }
  })
}

function sideOf(accumulator: SummaryAccumulator): RescoredSide {
  const { scored, score, components } = accumulator.snapshot()
  return { scored, score, components }
}
