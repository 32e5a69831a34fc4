import type { WireError } from '../errors/index.ts'
import { outcomes, type Outcome, type RolloutRecord } from '../schema/index.ts'

/** What becomes of the record of a rollout whose reward failed. */
export function failedReward(
  { outcome }: RolloutRecord,
  error: WireError,
): Pick<RolloutRecord, 'outcome' | 'truncated' | 'reward' | 'error' | 'agentOutcome'> {
  return { outcome: 'reward_error', truncated: false, reward: null, error, ...agentOutcomeBehind(outcome) }
}

/** How an agent had ended that did not end by itself: whoever scores it later must know. */
export function agentOutcomeBehind(outcome: Outcome | undefined): Pick<RolloutRecord, 'agentOutcome'> {
  return outcome !== undefined && outcomes[outcome].truncated ? { agentOutcome: outcome } : {}
}
