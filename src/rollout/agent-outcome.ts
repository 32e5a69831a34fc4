import { outcomes, type Outcome, type RolloutRecord } from '../schema/index.ts'

type AgentOutcome = Pick<RolloutRecord, 'agentOutcome'>

/** The record of a failed reward keeps that the agent was truncated, because a later scoring of the rollout must know. */
export function agentOutcomeBehind(outcome: Outcome | undefined): AgentOutcome {
  return outcome !== undefined && outcomes[outcome].truncated ? { agentOutcome: outcome } : {}
}

/** How the agent of a record ended, whatever became of its reward. An agent that ended by itself has no `agentOutcome`. */
export function agentOutcomeOf({ outcome, agentOutcome }: AgentOutcome & Pick<RolloutRecord, 'outcome'>): Outcome {
  return outcome === 'reward_error' ? (agentOutcome ?? 'completed') : outcome
}
