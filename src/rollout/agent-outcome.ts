import { outcomes, type Outcome, type RolloutRecord } from '../schema/index.ts'

type AgentOutcome = Pick<RolloutRecord, 'agentOutcome'>

/** What the record of a failed reward keeps of how the agent had ended: whoever scores it later must know. */
export function agentOutcomeBehind(outcome: Outcome | undefined): AgentOutcome {
  return outcome !== undefined && outcomes[outcome].truncated ? { agentOutcome: outcome } : {}
}

/** How the agent of a record had ended, whatever became of its reward. Of what ended by itself nothing is kept. */
export function agentOutcomeOf({ outcome, agentOutcome }: AgentOutcome & Pick<RolloutRecord, 'outcome'>): Outcome {
  return outcome === 'reward_error' ? (agentOutcome ?? 'completed') : outcome
}
