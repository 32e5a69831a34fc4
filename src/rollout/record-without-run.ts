import type { MillraceError } from '../errors/index.ts'
import { emptyUsage, type Outcome, type RolloutRecord } from '../schema/index.ts'

/** The record of a rollout that never ran, or of which nothing is known: n rollouts asked for are n outcomes. */
export function recordWithoutRun(
  parts: Pick<RolloutRecord, 'id' | 'environment' | 'model' | 'task' | 'sample' | 'attempt'> & {
    readonly outcome: Outcome
    readonly error: MillraceError
  },
): RolloutRecord {
  const { error, ...known } = parts
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
    timing: { startedAt: Date.now(), wallMs: 0, workingMs: 0, waitMs: 0, modelMs: 0, toolMs: 0, rewardMs: 0 },
  }
}
