import type { ScoringPlace } from '../env/index.ts'
import type { StopClock } from '../kit/index.ts'
import type { LiveContext } from './live-context.ts'
import type { LiveRollout } from './live-rollout.ts'
import type { RewardPool } from './reward-pool.ts'

/** Scores the heavy components of a rollout on the threads of a pool. `clock` is the one of the reward. */
export function scoreElsewhere(
  pool: RewardPool,
  { context, liveRollout, clock }: { context: LiveContext; liveRollout: LiveRollout; clock: StopClock },
): NonNullable<ScoringPlace['scoreElsewhere']> {
  return (component, timeoutMs) => {
    const { task, rollout, messages, answer, outcome, truncated, signal } = context
    const input = { task, rollout, messages, answer, outcome, truncated, info: liveRollout.notes }
    return pool.score({ component, input, timeoutMs, clock, signal })
  }
}
