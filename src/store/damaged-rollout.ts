import type { ErrorCode, MillraceError } from '../errors/index.ts'
import type { Outcome } from '../schema/index.ts'
import type { RolloutFacts } from './stored-run.ts'

/** Takes the place of a rollout that cannot be read. The other rollouts are not affected. */
export interface DamagedRollout {
  readonly kind: 'damaged'
  readonly id: string
  readonly task: { readonly index: number; readonly id: string | null }
  readonly sample: number
  readonly attempt: number
  readonly outcome: Outcome
  /** Always null: a consumer that filters for rollouts with a reward expects their other fields, too. */
  readonly reward: null
  readonly error: { readonly code: ErrorCode; readonly message: string }
}

/** A `RunReader`, or something else that knows the tasks of a run. */
export interface TaskNames {
  task(index: number): { readonly id: string } | undefined
}

export function damagedRollout(tasks: TaskNames, facts: RolloutFacts, error: MillraceError): DamagedRollout {
  const { rollout: id, task: index, sample, attempt, outcome } = facts
  return {
    kind: 'damaged',
    id,
    task: { index, id: tasks.task(index)?.id ?? null },
    sample,
    attempt,
    outcome,
    reward: null,
    error: { code: error.code, message: error.rawMessage },
  }
}
