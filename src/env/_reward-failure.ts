import { MillraceError } from '../errors/index.ts'
import { thrownBy } from '../kit/index.ts'
import { endsAttempt } from '../tools/index.ts'

/** What a component's exception means: the stop that caused it, the end of the attempt, or a failed reward with its name. */
export function rewardFailure(name: string, thrown: unknown, signal: AbortSignal): unknown {
  if (signal.aborted) return signal.reason
  if (endsAttempt(thrown)) return thrown
  return namedFailure(name, thrown)
}

/**
 * A failed reward with the component's name. An error that has the name already, because it comes from another thread, is
 * kept.
 */
export function namedFailure(name: string, thrown: unknown): MillraceError {
  if (thrown instanceof MillraceError && thrown.data['component'] === name) return thrown
  const { rawMessage, data } = thrownBy(`reward "${name}"`, thrown, 'reward_failed')
  return new MillraceError('reward_failed', rawMessage, { data: { ...data, component: name }, cause: thrown })
}
