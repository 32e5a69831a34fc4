import { rolloutId } from '../schema/index.ts'

/** What is remembered of a request: which rollouts are its own, and whether another body with its id is the same. */
export interface KnownRequest {
  readonly id: string
  /** Of its tasks, attempts and sampling. */
  readonly digest: string
  /** Tasks are numbered through the run; a request's are in one row. */
  readonly firstTask: number
  readonly tasks: number
  readonly attempts: number
  /** Its rollouts belong to no connection: nobody's leaving cancels them. Asked for again as detached, it becomes so. */
  isDetached: boolean
  readonly at: number
}

export function rolloutCount({ tasks, attempts }: KnownRequest): number {
  return tasks * attempts
}

/** In the order of tasks and samples. */
export function* rolloutIds({ firstTask, tasks, attempts }: KnownRequest): Generator<string, void, void> {
  for (let task = firstTask; task < firstTask + tasks; task += 1) {
    for (let sample = 0; sample < attempts; sample += 1) yield rolloutId(task, sample)
  }
}
