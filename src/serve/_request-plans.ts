import type { PlannedAttempt, PlannedRollout } from '../rollout/index.ts'
import { rolloutId, type Sampling } from '../schema/index.ts'
import type { CheckedTask } from './_check-tasks.ts'
import type { KnownRequest } from './known-request.ts'

/** A rollout that is due, and how much its task takes up while it waits. */
export interface DueRollout {
  readonly plan: PlannedRollout
  readonly bytes: number
}

/** Every attempt at every task of a new request. */
export function requestPlans(
  { firstTask, attempts }: KnownRequest,
  tasks: readonly CheckedTask[],
  sampling: Sampling | undefined,
): DueRollout[] {
  const due: DueRollout[] = []
  let index = firstTask
  for (const { name, value, bytes } of tasks) {
    const task = { index, id: name ?? String(index), data: value }
    for (let sample = 0; sample < attempts; sample += 1) {
      const id = rolloutId(index, sample)
      const plan: PlannedAttempt = { kind: 'attempt', id, sample, task, attempt: 1, ...(sampling && { sampling }) }
      due.push({ plan, bytes })
    }
    index += 1
  }
  return due
}
