import type { RolloutIdentity } from '../env/index.ts'
import type { Json } from '../schema/index.ts'
import type { RolloutJob } from './job.ts'

/** What a rollout and its children share. */
export interface Situation {
  readonly job: RolloutJob
  readonly identity: RolloutIdentity
  readonly task: unknown
  state: unknown
  readonly metrics: Record<string, number>
  readonly notes: Record<string, Json>
  /** How often a child with the same opening was started, so that each gets its own id. Made with the first child. */
  childIds?: Map<string, number>
}

export function situationOf(job: RolloutJob): Situation {
  return {
    job,
    identity: { id: job.id, attempt: job.attempt, sample: job.sample, seed: job.seed },
    task: job.task.data,
    state: undefined,
    metrics: {},
    notes: {},
  }
}
