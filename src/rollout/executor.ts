import type { ModelStatus } from '../inference/index.ts'
import type { LoopLagWindow } from '../kit/index.ts'
import type { RewardComponent } from '../schema/index.ts'
import type { ToolServerStatus } from '../tools/index.ts'
import type { AttemptResult, GroupJob, RolloutJob } from './job.ts'

/** Scores by rollout id, then by component. */
export type GroupScores = Readonly<Record<string, Readonly<Record<string, RewardComponent>>>>

/** One worker as the outside sees it. A worker that is replaced keeps its place: `id` stays, `restarts` grows. */
export interface WorkerStatus {
  readonly id: number
  readonly kind: 'thread' | 'process'
  /** Only a `ready` worker is given work. A `silent` worker has not been heard of for a while: its loop is blocked. */
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

/**
 * Where rollouts run. Whatever happens in a rollout is in its result; `run` rejects only when the place itself is gone, or with
 * an error nobody foresaw.
 * By the time `run` resolves, every node of the attempt was handed to the journal.
 */
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
  /** The tool servers of the environment; those of all workers together. */
  servers(): readonly ToolServerStatus[]
}
