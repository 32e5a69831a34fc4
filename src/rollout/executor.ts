import type { ModelStatus } from '../inference/index.ts'
import type { RewardComponent } from '../schema/index.ts'
import type { AttemptResult, GroupJob, RolloutJob } from './job.ts'

/** Scores by rollout id, then by component. */
export type GroupScores = Readonly<Record<string, Readonly<Record<string, RewardComponent>>>>

/**
 * Where rollouts run. Whatever happens in a rollout is in its result; `run` rejects only when the place itself is broken.
 * By the time it resolves, every node of the attempt was handed to the journal.
 */
export interface Executor extends AsyncDisposable {
  run(job: RolloutJob, signal: AbortSignal): Promise<AttemptResult>
  scoreGroup(job: GroupJob, signal: AbortSignal): Promise<GroupScores>
  /** Asks the policy for a word, so that a wrong key or name is found before anything is spent. */
  preflight(signal: AbortSignal): Promise<void>
  models(): readonly ModelStatus[]
}
