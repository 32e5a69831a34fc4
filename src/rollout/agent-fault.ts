import { MillraceError } from '../errors/index.ts'
import { thrownBy } from '../kit/index.ts'

/**
 * What the author's own code threw, or did wrong with its context, with the place. Any other `MillraceError` stays as it is: its
 * code already says what it means for the rollout.
 */
export function agentFault(hook: 'agent' | 'update' | 'contextPolicy', thrown: unknown): MillraceError {
  const isOurs = thrown instanceof MillraceError && thrown.code !== 'env_invalid'
  return isOurs ? thrown : thrownBy(hook, thrown, 'agent_failed')
}
