import type { MillraceError } from '../errors/index.ts'
import { emptyUsage, type Outcome, type RolloutRecord } from '../schema/index.ts'
import type { AttemptStart } from '../store/index.ts'
import { attemptStart } from './attempt-start.ts'
import type { AttemptSpending } from './journalled-spending.ts'

/** The record of a rollout that never ran, or of which nothing is known: every rollout asked for has an outcome. */
export function recordWithoutRun(
  parts: Pick<RolloutRecord, 'id' | 'environment' | 'model' | 'task' | 'sample' | 'attempt'> & {
    readonly outcome: Outcome
    readonly error: MillraceError
    /** When the work on the rollout began; now if not given. */
    readonly startedAt?: number
    /** Nothing if not given. */
    readonly spent?: AttemptSpending | undefined
  },
): RolloutRecord {
  const { error, startedAt = Date.now(), spent, ...known } = parts
  return {
    ...known,
    truncated: false,
    error: error.toWire(),
    reward: null,
    rewards: {},
    metrics: {},
    answer: null,
    messages: [],
    turns: 0,
    toolCalls: 0,
    toolErrors: 0,
    children: 0,
    usage: emptyUsage(),
    judgeUsage: emptyUsage(),
    cost: 0,
    ...spent,
    timing: { startedAt, wallMs: Date.now() - startedAt, workingMs: 0, waitMs: 0, modelMs: 0, toolMs: 0, rewardMs: 0 },
  }
}

/** The start of an attempt that never ran, so that every rollout in the journal has one. */
export function startWithoutRun(record: RolloutRecord): AttemptStart {
  return attemptStart(record, record.timing.startedAt, null)
}
