import type { WireError } from '../errors/index.ts'
import { agentOutcomeOf } from '../rollout/index.ts'
import type { Outcome } from '../schema/index.ts'
import type { BareRecord } from '../store/index.ts'

/** The limit of the budget that an outcome stands for. */
const spentLimits: Partial<Record<Outcome, string>> = {
  max_turns: 'turns',
  max_tokens: 'tokens',
  max_cost: 'cost',
  agent_timeout: 'time',
  infra_timeout: 'wall',
}

/** Ends that came from outside, where the agent waited for something: a replay raises them again in the same place. */
const outerEnds: ReadonlySet<Outcome> = new Set<Outcome>([
  'context_length',
  'model_error',
  'tool_infra_error',
  'sandbox_lost',
  'cancelled',
])

/** The error that ended the agent of a session, to be raised where its recording ends; undefined if it ended by itself. */
export function recordedEnd(record: BareRecord): WireError | undefined {
  const outcome = agentOutcomeOf(record)
  const limit = spentLimits[outcome]
  if (limit !== undefined) {
    return { code: 'budget_exhausted', message: `it was ended as ${outcome} here`, data: { limit } }
  }
  if (!outerEnds.has(outcome)) return undefined
  return outcome === 'context_length' || !record.error
    ? { code: 'context_length', message: 'the conversation was too long for the model here' }
    : record.error
}
