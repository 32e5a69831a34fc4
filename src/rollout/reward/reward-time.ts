import type { ScoringHooks } from '../../env/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { AbortScope, type ExhaustedClock, StopClock } from '../../kit/index.ts'
import type { Limits } from '../../schema/index.ts'
import type { LiveContext } from '../agent/live-context.ts'
import type { LiveRollout } from '../environment/live-rollout.ts'
import type { RewardPool } from './reward-pool.ts'

/** The time kept for the reward. Its clock stands still while the reward waits, but no longer than `wallMs`. */
export class RewardTime implements Disposable {
  readonly scope: AbortScope
  readonly clock: StopClock

  constructor({ limits, wallMs, signal }: { limits: Limits; wallMs: number; signal: AbortSignal }) {
    const scope = new AbortScope(signal)
    this.scope = scope
    this.clock = new StopClock({
      limitMs: limits.tailMs,
      wallMs,
      onSpent: (what) => scope.abort(late(what, limits)),
    })
  }

  [Symbol.dispose](): void {
    this.scope[Symbol.dispose]()
    this.clock.stop()
  }
}

function late(what: ExhaustedClock, { tailMs, wallTimeoutMs }: Limits): MillraceError {
  if (what === 'time') return lateReward('the reward', tailMs)
  return new MillraceError(
    'reward_failed',
    `the reward still waited for a judge, a thread, a tool server or its turn to run a command when the rollout's ${wallTimeoutMs} ms (wallTimeoutMs) were used up`,
  )
}

/** It names the limit, because that has no flag. */
export function lateReward(what: 'the reward' | 'the group reward', tailMs: number): MillraceError {
  return new MillraceError('reward_failed', `${what} took longer than the ${tailMs} ms reserved for it (limits.tailMs)`)
}

export function scoreOnThread(
  pool: RewardPool,
  { context, liveRollout, clock }: { context: LiveContext; liveRollout: LiveRollout; clock: StopClock },
): NonNullable<ScoringHooks['scoreOnThread']> {
  return (component, timeoutMs) => {
    const { task, rollout, messages, answer, outcome, truncated, signal } = context
    const input = { task, rollout, messages, answer, outcome, truncated, info: liveRollout.notes }
    return pool.score({ component, input, timeoutMs, clock, signal })
  }
}
