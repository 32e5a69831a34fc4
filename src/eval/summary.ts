import type { Outcome, ToolFault, Usage } from '../schema/index.ts'
import type { ForkOrigin } from './replay/fork.ts'
import type { ScoreEstimate } from './progress.ts'
import type { Spending } from './run-spending.ts'

/** The results of a run. Every figure says over how many it was taken. */
export interface Summary {
  readonly run: string
  readonly folder: string
  readonly environment: string
  readonly model: string
  readonly attemptsPerTask: number
  /** The rollout that those of this run go on from, if it was forked. */
  readonly forkedFrom?: ForkOrigin
  /** How this sitting ended. */
  readonly end: 'complete' | 'drained' | 'stopped' | 'max_cost' | 'failed'
  /** Of the run: a sitting that did all it was asked for may leave it open, if it is of more tasks. */
  readonly state: 'complete' | 'unfinished'
  /** Tasks that the run is of and their source does not have any more, as far as it is known how many there were. */
  readonly missingTasks: number
  /** Ids that several tasks have, up to ten of them: nobody can tell those tasks apart by it, and one may be there twice. */
  readonly repeatedTaskIds: readonly string[]
  /** Files of the environment's code that changed between sittings: the results are not all of the same code. */
  readonly changedCode: readonly string[]
  /** Results of earlier sittings whose records are damaged, the first of them by name. They are in no figure here. */
  readonly unreadable?: { readonly rollouts: number; readonly ids: readonly string[] }
  readonly tasks: number
  readonly rollouts: number
  /** Rollouts that carry a reward: the denominator of `score`. */
  readonly scored: number
  readonly score: ScoreEstimate | undefined
  /** Each reward component and metric, over the rollouts that have it. */
  readonly components: Readonly<
    Record<string, { readonly mean: number; readonly rollouts: number; readonly weight: number }>
  >
  /** Per power of two up to the attempts per task, over the tasks all of whose rollouts were scored. */
  readonly pass: readonly { readonly k: number; readonly atK: number; readonly hatK: number; readonly tasks: number }[]
  /** A rollout passes when its reward is at least this. */
  readonly passThreshold: number
  readonly outcomes: Readonly<Record<Outcome, number>>
  /** Of each outcome without a score, why the first rollout ended so. */
  readonly reasons: Readonly<Partial<Record<Outcome, string>>>
  readonly voided: number
  /** Calls of tools, and those the model was shown an error for. */
  readonly tools: { readonly calls: number; readonly failed: number }
  /** What tools threw, by tool and kind, with the message of the first: perhaps a model's mistake, perhaps a fault of the tool. */
  readonly toolFaults: readonly ToolFault[]
  /** Tool servers that rollouts had to do without: how many of them, and why the first one did. */
  readonly missingServers: readonly { readonly server: string; readonly rollouts: number; readonly cause: string }[]
  readonly usage: Usage
  readonly judgeUsage: Usage
  /** US dollars; null where no price is known. */
  readonly cost: number | null
  /** Rollouts whose cost is not known, and so not in `cost`. */
  readonly costUnknown: number
  readonly durations: Readonly<
    Record<'wall' | 'model' | 'tools' | 'reward' | 'wait', { readonly p50Ms: number; readonly p95Ms: number }>
  >
  /** Attempts that were retried, replaced, given up or taken back: paid for, and in no other figure. */
  readonly discarded: Spending
  /**
   * Attempts that have not come to their end, as far as they are: they go on when the run is continued. Of them
   * `waitForGroup` have ended and wait for the others of their group.
   */
  readonly unfinished: Spending & { readonly waitForGroup: number }
  /** What its sittings took, from their first rollouts on, and the rollouts that ended in a second of that. */
  readonly wallMs: number
  readonly perSecond: number
  /** Of all its sittings but those that were cut off. */
  readonly tries: { readonly calls: number; readonly tries: number }
}
