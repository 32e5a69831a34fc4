import type { MillraceError } from '../errors/index.ts'
import { emptyUsage, type Outcome, type RolloutRecord } from '../schema/index.ts'
import type { AttemptStart } from '../store/index.ts'
import { attemptStart, StartTime } from './attempt-start.ts'
import type { AttemptSpending } from './journalled-spending.ts'

/** The record of a rollout that never ran, or of which nothing is known: every rollout asked for has an outcome. */
export function recordWithoutRun(
  parts: Pick<RolloutRecord, 'id' | 'environment' | 'model' | 'task' | 'sample' | 'attempt'> & {
    readonly outcome: Outcome
    readonly error: MillraceError
    /** When the work on the rollout began; now if not given. */
    readonly start?: StartTime
    /** Nothing if not given. */
    readonly spent?: AttemptSpending | undefined
  },
): RolloutRecord {
  const { error, start = new StartTime(), spent, ...known } = parts
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
    timing: {
      startedAt: start.at,
      wallMs: start.elapsedMs,
      workingMs: 0,
      waitMs: 0,
      modelMs: 0,
      toolMs: 0,
      rewardMs: 0,
    },
  }
}

/** The start of an attempt that never ran, so that every rollout in the journal has one. */
export function startWithoutRun(record: RolloutRecord): AttemptStart {
  return attemptStart(record, record.timing.startedAt, null)
}
