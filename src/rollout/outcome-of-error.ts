import type { ErrorCode, MillraceError } from '../errors/index.ts'
import type { Outcome } from '../schema/index.ts'
import type { SpentLimit } from './budget-meter.ts'

const outcomeOfLimit: Record<SpentLimit, Outcome> = {
  turns: 'max_turns',
  tokens: 'max_tokens',
  cost: 'max_cost',
  time: 'agent_timeout',
  silence: 'infra_timeout',
  wall: 'infra_timeout',
}

/** A code that is not here has no outcome of its own: the agent's own code threw it. */
const outcomeOfCode: Partial<Record<ErrorCode, Outcome>> = {
  context_length: 'context_length',
  cancelled: 'cancelled',
  closed: 'cancelled',
  // The tool that started this child ran out of time.
  tool_timeout: 'cancelled',
  // The run is stopping and nothing of this attempt can be recorded any more; on resume it goes on from its journal.
  disk_full: 'cancelled',
  store_failed: 'cancelled',
  run_gone: 'cancelled',
  tool_infra: 'tool_infra_error',
  model_connect: 'model_error',
  model_timeout: 'model_error',
  model_conflict: 'model_error',
  model_rate_limited: 'model_error',
  model_server_error: 'model_error',
  model_overloaded: 'model_error',
  model_truncated: 'model_error',
  model_malformed: 'model_error',
  model_auth: 'model_error',
  model_not_found: 'model_error',
  model_rejected: 'model_error',
}

/** How an agent's end by an error is recorded. */
export function outcomeOfError(error: MillraceError): Outcome {
  return outcomeOfSpending(error) ?? outcomeOfCode[error.code] ?? 'agent_error'
}

/** How a rollout ends that has used up a limit; undefined if the error names no limit, as one thrown by an author may. */
export function outcomeOfSpending({ code, data: { limit } }: MillraceError): Outcome | undefined {
  return code === 'budget_exhausted' && isSpentLimit(limit) ? outcomeOfLimit[limit] : undefined
}

function isSpentLimit(limit: unknown): limit is SpentLimit {
  return typeof limit === 'string' && Object.hasOwn(outcomeOfLimit, limit)
}
