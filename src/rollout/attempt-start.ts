import type { AttemptStart } from '../store/index.ts'
import type { RolloutJob } from './job.ts'

type Begun = Pick<RolloutJob, 'id' | 'attempt' | 'sample'> & { readonly task: { readonly index: number } }

/** The journal entry for the start of an attempt at a rollout, or at a child of `parent`. */
export function attemptStart({ id, attempt, sample, task }: Begun, at: number, parent: string | null): AttemptStart {
  return { kind: 'attempt-start', rollout: id, attempt, parent, task: task.index, sample, at }
}
