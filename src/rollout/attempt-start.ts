import type { AttemptStart } from '../store/index.ts'
import type { RolloutJob } from './job.ts'

/** When work began. Timestamps come from the wall clock; durations do not, because somebody may set that clock meanwhile. */
export class StartTime {
  /** Milliseconds since 1970. */
  readonly at = Date.now()
  readonly #startMs = performance.now()

  get elapsedMs(): number {
    return Math.round(performance.now() - this.#startMs)
  }
}

type Begun = Pick<RolloutJob, 'id' | 'attempt' | 'sample'> & { readonly task: { readonly index: number } }

/** The journal entry for the start of an attempt at a rollout, or at a child of `parent`. */
export function attemptStart({ id, attempt, sample, task }: Begun, at: number, parent: string | null): AttemptStart {
  return { kind: 'attempt-start', rollout: id, attempt, parent, task: task.index, sample, at }
}
