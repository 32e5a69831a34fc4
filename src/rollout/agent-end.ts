import type { MillraceError } from '../errors/index.ts'
import type { Outcome } from '../schema/index.ts'
import { outcomeOfError } from './outcome-of-error.ts'

/** How an agent's work, or another part of a rollout, ended. */
export interface AgentEnd {
  readonly outcome: Outcome
  readonly error?: MillraceError
}

export const completed: AgentEnd = { outcome: 'completed' }

export function endedBy(error: MillraceError): AgentEnd {
  return { outcome: outcomeOfError(error), error }
}
