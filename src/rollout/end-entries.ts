import { messageJson } from '../inference/index.ts'
import type { RolloutRecord } from '../schema/index.ts'
import type { AttemptEnd, RolloutEnd } from '../store/index.ts'
import type { HeldRollout } from './group-keeper.ts'

/** The journal entry of a rollout that has settled. */
export function rolloutEnd({ record, leaf }: HeldRollout): RolloutEnd {
  return {
    kind: 'rollout-end',
    rollout: record.id,
    attempt: record.attempt,
    task: record.task.index,
    sample: record.sample,
    at: Date.now(),
    outcome: record.outcome,
    reward: record.reward,
    record: headJson(record),
    leaf,
    messages: record.messages.map(messageJson),
  }
}

/** The journal entry of an attempt that does not count, or waits for its group. */
export function attemptEnd({ record, leaf }: HeldRollout, isHeld: boolean): AttemptEnd {
  return {
    kind: 'attempt-end',
    rollout: record.id,
    attempt: record.attempt,
    at: Date.now(),
    outcome: record.outcome,
    isHeld,
    record: headJson(record),
    leaf,
  }
}

/** The record without its messages, which the journal keeps once. JSON leaves out what is undefined. */
function headJson(record: RolloutRecord): string {
  return JSON.stringify({ ...record, messages: undefined })
}
