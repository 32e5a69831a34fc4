import type { NamedAgent } from '../agents/index.ts'
import type { Outcome, ToolFault, Usage } from '../schema/index.ts'
import type { ForkOrigin } from './replay/fork.ts'
import type { ScoreEstimate } from './stats/clustered-mean.ts'

/** What the rollouts of a run come to. Every figure says over how many rollouts or tasks it was taken. */
export interface RolloutSummary {
  readonly attemptsPerTask: number
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
  /** For each outcome without a score, why the first rollout ended so. */
  readonly reasons: Readonly<Partial<Record<Outcome, string>>>
  readonly voided: number
  /** How many tools were called, and how many calls showed the model an error. */
  readonly tools: { readonly calls: number; readonly failed: number }
  /** What tools threw, by tool and kind, with the first message: perhaps a model's mistake, perhaps a fault of the tool. */
  readonly toolFaults: readonly ToolFault[]
  /** Tool servers that rollouts had to do without: how many rollouts, and why the first one did. */
  readonly missingServers: readonly { readonly server: string; readonly rollouts: number; readonly cause: string }[]
  readonly usage: Usage
  readonly judgeUsage: Usage
  /** The models that judges asked, up to 20 of them. */
  readonly judgeModels: readonly string[]
  /** US dollars; null where no price is known. */
  readonly cost: number | null
  /** Rollouts whose cost is not known, and so not in `cost`. */
  readonly costUnknown: number
  /** Over the rollouts that ran: one that ended as `env_error` before its first turn is left out. NaN if none ran. */
  readonly durations: Readonly<
    Record<'wall' | 'model' | 'tools' | 'reward' | 'wait', { readonly p50Ms: number; readonly p95Ms: number }>
  >
}

/** What was spent on attempts that are no results: it was paid for, and is in no figure of the results. */
export interface Spending {
  readonly attempts: number
  /** The usage of judges is included. */
  readonly usage: Usage
  /** US dollars, as far as prices are known. */
  readonly costUsd: number
  /** Attempts whose cost is not known, and so not in `costUsd`. */
  readonly costUnknown: number
}

/** The results of a run. */
export interface Summary extends RolloutSummary {
  readonly run: string
  readonly folder: string
  readonly environment: string
  readonly model: string
  /** The agent that the run was asked for, in place of the environment's own. */
  readonly agent?: NamedAgent
  /** The rollout that this run was forked from, if it was. */
  readonly forkedFrom?: ForkOrigin
  /** How this launch ended. */
  readonly end: 'complete' | 'drained' | 'stopped' | 'max_cost' | 'failed'
  /** The state of the run: a launch that did all it was asked for may leave it open, if the run has more tasks. */
  readonly state: 'complete' | 'unfinished'
  /** Tasks of the run that its source does not have any more, as far as their number is known. */
  readonly missingTasks: number
  /** Ids that several tasks share, up to ten of them: such tasks cannot be told apart by it, and one may be there twice. */
  readonly repeatedTaskIds: readonly string[]
  /** Files of the environment's code that changed between launches: the results are not all of the same code. */
  readonly changedCode: readonly string[]
  /** Results of earlier launches whose records are damaged, the first of them by name. They are in no figure here. */
  readonly unreadable?: { readonly rollouts: number; readonly ids: readonly string[] }
  /** Attempts that were retried, replaced, abandoned or taken back: they were paid for, and are in no other figure. */
  readonly discarded: Spending
  /**
   * The spending so far of attempts that have not ended: they go on when the run is continued. `waitForGroup` of them have ended
   * and wait for the others of their group.
   */
  readonly unfinished: Spending & { readonly waitForGroup: number }
  /** How long the run's launches worked, each from its first rollout on, and how many rollouts ended per second of that. */
  readonly wallMs: number
  readonly perSecond: number
  /** The tries of all launches of the run that were not cut off. */
  readonly tries: { readonly calls: number; readonly tries: number }
}
