import type { NamedAgent } from '../../agents/index.ts'
import type { ModelStatus } from '../../inference/index.ts'
import type { LoopLagWindow } from '../../kit/index.ts'
import type { Limits, Message, RewardComponent, RolloutRecord, Sampling } from '../../schema/index.ts'
import type { ToolServerStatus } from '../../tools/index.ts'
import type { Recording } from '../recording/recording.ts'
import type { ToolFormatName } from '../../tool-formats/index.ts'

/** Scores by rollout id, then by component. */
export type GroupScores = Readonly<Record<string, Readonly<Record<string, RewardComponent>>>>

/** One worker as the outside sees it. A worker that is replaced keeps its place: `id` stays, `restarts` grows. */
export interface WorkerStatus {
  readonly id: number
  readonly kind: 'thread' | 'process'
  /** Only a `ready` worker is given work. A `silent` worker has sent nothing for a while: its loop is blocked. */
  readonly state: 'starting' | 'ready' | 'silent' | 'draining' | 'gone'
  readonly running: number
  readonly lag: LoopLagWindow
  readonly memoryBytes: number
  readonly restarts: number
  /** What the loop is busy with while the worker is silent: `name (file:line)`, where that can be told. */
  readonly blockedBy?: string
}

/** Threads that take large work off a loop. Several workers may each report threads of the same name. */
export interface OffloadStatus {
  readonly name: 'decode' | 'reward'
  readonly threads: number
  readonly queued: number
  readonly waitP99Ms: number
}

/** Where rollouts run. `run` rejects only when the place is gone; its nodes are in the journal when it resolves. */
export interface Executor extends AsyncDisposable {
  run(job: RolloutJob, signal: AbortSignal): Promise<AttemptResult>
  scoreGroup(job: GroupJob, signal: AbortSignal): Promise<GroupScores>
  /** Asks the policy model for a word, so that a wrong key or name is found before anything is spent. Resolves to notices. */
  preflight(signal: AbortSignal): Promise<readonly string[]>
  /** Whether a rollout that is sent now would begin at once, as far as that depends on where it runs. */
  readonly takesWork: boolean
  models(): readonly ModelStatus[]
  /** Empty where rollouts run on the caller's own thread. */
  workers(): readonly WorkerStatus[]
  offload(): readonly OffloadStatus[]
  servers(): readonly ToolServerStatus[]
}

/** What a rollout is asked with: the same for each of its attempts. */
export interface RolloutTerms {
  readonly task: { readonly index: number; readonly id: string; readonly data: unknown }
  /** Wins over the run's sampling, for this rollout alone. */
  readonly sampling?: Sampling
  /** What the rollout hears again in place of models, tools and judges, as far as it goes. */
  readonly recording?: Recording
  readonly opening?: PromptOverride
  /** No reward is computed, and no group waited for: whoever asked wants to know what the agent says. */
  readonly isScored?: false
}

/** One attempt at one task. A plain cloneable value: it runs the same on this thread, another, or another machine. */
export interface RolloutJob extends RolloutTerms {
  readonly id: string
  readonly attempt: number
  readonly sample: number
  readonly seed: number
}

export interface PromptOverride {
  /** The conversation begins with these, and the environment's prompt is not asked. */
  readonly messages?: readonly Message[]
  /** Takes the place of the system message, or goes before everything else. */
  readonly system?: string
  readonly prompt?: string
}

/** The settings of every rollout of a run. Plain and cloneable as well. */
export interface RunSettings {
  /** The name of the run, for those who listen to the rollouts of a process that has several. */
  readonly run?: string
  readonly model: string
  readonly judge: string
  /** The models that are known to be asked: a preflight asks each of them for a word. */
  readonly asked: readonly string[]
  readonly judgeConcurrency: number
  readonly limits: Limits
  readonly sampling: Sampling
  readonly captureTokens: boolean
  /** A rollout with tokens that are more versions behind ends as `stale`. */
  readonly maxVersionsBehind?: number
  /** The agent of the rollouts; if not given, that of the environment, or the tool loop. */
  readonly agent?: NamedAgent
  /** The format of tool calls, for models that write them into their text. */
  readonly toolFormat?: ToolFormatName
  /** Whether each request carries a seed, derived from the rollout's. */
  readonly sendSeed: boolean
  /** Where tool outputs are kept that are too long to show. An environment that keeps them needs it. */
  readonly outputsFolder?: string
  /** Connections of clients for which the process leaves descriptors: it is a server. */
  readonly clients?: number
}

export type AttemptResult =
  | { readonly kind: 'ended'; readonly record: RolloutRecord; readonly leaf: number | null }
  /** The agent did not repeat what the journal holds: the rollout must start over as a new attempt. */
  | { readonly kind: 'diverged'; readonly why: string }
  /** The worker died. `again` costs the rollout none of its retries; the executor bounds how often it says that. */
  | { readonly kind: 'lost'; readonly why: string; readonly disposition: 'again' | 'worker_lost' | 'poisoned' }

/** A whole group to be scored together. Only members that may carry a reward are in it. */
export interface GroupJob {
  readonly task: RolloutTerms['task']
  readonly members: readonly RolloutRecord[]
}
