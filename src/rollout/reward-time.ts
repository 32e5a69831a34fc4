import { MillraceError } from '../errors/index.ts'
import { AbortScope, StopClock, type SpentTime } from '../kit/index.ts'
import type { Limits } from '../schema/index.ts'
import { lateReward } from './late-reward.ts'

/**
 * The time kept for the reward, which the agent could not spend. Its clock stands still while the reward waits for a judge, a
 * thread, a tool server that is away or its turn to run a command, but not for longer than `wallMs`.
 */
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

function late(what: SpentTime, { tailMs, wallTimeoutMs }: Limits): MillraceError {
  if (what === 'time') return lateReward('the reward', tailMs)
  return new MillraceError(
    'reward_failed',
    `the reward still waited for a judge, a thread, a tool server or its turn to run a command when the rollout's ${wallTimeoutMs} ms (wallTimeoutMs) were used up`,
  )
}
