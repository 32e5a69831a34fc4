import { MillraceError } from '../errors/index.ts'
import { endsAttempt } from '../tools/index.ts'

/** What a component's exception means: the stop that caused it, the end of the attempt, or a failed reward with its name. */
export function rewardFailure(name: string, thrown: unknown, signal: AbortSignal): unknown {
  if (signal.aborted) return signal.reason
  if (endsAttempt(thrown)) return thrown
  const { rawMessage, data } = MillraceError.from(thrown, 'reward_failed')
  return new MillraceError('reward_failed', `reward "${name}": ${rawMessage}`, {
    data: { ...data, component: name },
    cause: thrown,
  })
}
