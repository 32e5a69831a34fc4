import { MillraceError } from '../errors/index.ts'
import { thrownBy } from '../kit/index.ts'

/** What the author's own code threw, with its place. Errors of ours say what they are, and what that means for the rollout. */
export function agentFault(hook: 'agent' | 'update' | 'contextPolicy', thrown: unknown): MillraceError {
  return thrown instanceof MillraceError ? thrown : thrownBy(hook, thrown, 'agent_failed')
}
