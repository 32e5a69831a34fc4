import { MillraceError } from '../errors/index.ts'
import type { Outcome } from '../schema/index.ts'
import type { SpentLimit } from './budget-meter.ts'

const outcomeOfLimit: Record<SpentLimit, Outcome> = {
  turns: 'max_turns',
  tokens: 'max_tokens',
  cost: 'max_cost',
  time: 'agent_timeout',
  wall: 'infra_timeout',
}

/** How an agent's end by an error is recorded. What is not ours to explain is the agent's own. */
export function outcomeOfError(error: MillraceError): Outcome {
  switch (error.code) {
    case 'budget_exhausted':
      return outcomeOfLimit[error.data['limit'] as SpentLimit]
    case 'context_length':
      return 'context_length'
    case 'cancelled':
    case 'closed':
      return 'cancelled'
    case 'tool_infra':
      return 'tool_infra_error'
    case 'model_connect':
    case 'model_timeout':
    case 'model_conflict':
    case 'model_rate_limited':
    case 'model_server_error':
    case 'model_overloaded':
    case 'model_truncated':
    case 'model_malformed':
    case 'model_auth':
    case 'model_not_found':
    case 'model_rejected':
      return 'model_error'
    case 'disk_full':
    case 'store_failed':
      // The run is stopping and nothing of this attempt can be recorded any more; on resume it goes on from its journal.
      return 'cancelled'
    default:
      return 'agent_error'
  }
}
