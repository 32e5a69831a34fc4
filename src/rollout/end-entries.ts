import { messageJson } from '../inference/index.ts'
import type { RolloutRecord } from '../schema/index.ts'
import type { AttemptEnd, RolloutEnd } from '../store/index.ts'
import type { HeldRollout } from './group-keeper.ts'

/** How a rollout that has settled stands in the journal. */
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

/** How an attempt does that does not count, or waits for its group. */
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

/** All but the messages, which the journal keeps once. What is undefined is left out of JSON. */
function headJson(record: RolloutRecord): string {
  return JSON.stringify({ ...record, messages: undefined })
}
