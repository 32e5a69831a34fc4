import type { WireError } from '../errors/index.ts'
import type { RolloutRecord } from '../schema/index.ts'
import { agentOutcomeBehind, agentOutcomeOf } from './agent-outcome.ts'

/** The fields that change in the record of a rollout whose reward failed. */
export function failedReward(
  record: RolloutRecord,
  error: WireError,
): Pick<RolloutRecord, 'outcome' | 'truncated' | 'reward' | 'error' | 'agentOutcome'> {
  const agentOutcome = agentOutcomeBehind(agentOutcomeOf(record))
  return { outcome: 'reward_error', truncated: false, reward: null, error, ...agentOutcome }
}
