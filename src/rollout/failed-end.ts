import { MillraceError, type ErrorCode } from '../errors/index.ts'
import { thrownBy } from '../kit/index.ts'
import { endsAttempt } from '../tools/index.ts'
import { endedBy, type AgentEnd } from './agent-end.ts'
import { outcomeOfSpending } from './outcome-of-error.ts'

/**
 * A phase outside the agent failed: by its own fault, or because somebody stopped the rollout. `hook` is the environment's
 * function that threw, if one did and the error does not say so.
 */
export function failedEnd(
  thrown: unknown,
  code: ErrorCode,
  { signal, hook }: { signal: AbortSignal; hook?: string },
): AgentEnd {
  if (signal.aborted) return endedBy(MillraceError.from(signal.reason, 'cancelled'))
  if (endsAttempt(thrown)) {
    // A child could not follow its journal: nothing of this attempt counts.
    if (thrown.code === 'replay_diverged') throw thrown
    return endedBy(thrown)
  }
  const spent = thrown instanceof MillraceError ? outcomeOfSpending(thrown) : undefined
  if (spent) return { outcome: spent, error: MillraceError.from(thrown, code) }
  return {
    outcome: code === 'reward_failed' ? 'reward_error' : 'env_error',
    error: hook === undefined ? recoded(thrown, code) : thrownBy(hook, thrown, code),
  }
}

function recoded(thrown: unknown, code: ErrorCode): MillraceError {
  return thrown instanceof MillraceError && thrown.code !== code
    ? new MillraceError(code, thrown.rawMessage, { data: thrown.data, cause: thrown })
    : MillraceError.from(thrown, code)
}
