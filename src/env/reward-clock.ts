import type { StopClock } from '../kit/index.ts'

/**
 * The name under which a context has the clock of the time kept for its reward. A symbol, because only rewards of this
 * library, which wait for their turn in a queue, look at it.
 */
export const rewardClock = Symbol('rewardClock')

/** A context of a reward that has a clock; those that are made in tests have none. */
export interface TimedContext {
  readonly [rewardClock]?: Pick<StopClock, 'startWait' | 'endWait'> | undefined
}
