import { type Environment, scoreGroup, type ScoreResult, scoreRollout, type ScoringHooks } from '../../env/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { AbortScope, type ExhaustedClock, StopClock } from '../../kit/index.ts'
import { type Limits, outcomes, type RolloutRecord } from '../../schema/index.ts'
import type { AgentRun } from '../agent/agent-run.ts'
import type { LiveContext } from '../agent/live-context.ts'
import type { LiveRollout } from '../environment/live-rollout.ts'
import { type AgentEnd, failedEnd } from '../result/outcome.ts'
import type { GroupScores } from '../schedule/executor.ts'
import type { RewardPool } from './reward-pool.ts'

export interface ScoredEnd {
  readonly end: AgentEnd
  readonly score?: ScoreResult
  readonly waitedMs?: number
}

export async function scoreEnd(run: AgentRun, end: AgentEnd, signal: AbortSignal): Promise<ScoredEnd> {
  if (!outcomes[end.outcome].scored || run.liveRollout.job.isScored === false) return { end }
  const { services, context, budget } = run
  const { limits } = services.settings
  using time = new RewardTime({ limits, wallMs: budget.wallMsLeft + limits.tailMs, signal })
  const { clock, scope } = time
  run.rewardClock = clock
  context.turnToReward(end.outcome, time)
  clock.watch()
  try {
    const { rewardPool, blockedRewards } = services
    const scored = { context, liveRollout: run.liveRollout, clock }
    const score = await scoreRollout(services.environment, context, {
      onBlocked: blockedRewards.note,
      ...(rewardPool && { scoreOnThread: scoreOnThread(rewardPool, scored) }),
    })
    return { end, score, waitedMs: clock.waitedMs }
  } catch (error) {
    // Components that still run must not work on a state that is about to be torn down.
    scope.abort(error)
    return { end: failedEnd(error, 'reward_failed', { signal }), waitedMs: clock.waitedMs }
  }
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

export async function scoreGroupInTime(
  environment: Environment,
  group: {
    readonly task: unknown
    readonly options: unknown
    readonly members: readonly RolloutRecord[]
    readonly tailMs: number
    readonly signal: AbortSignal
  },
): Promise<GroupScores> {
  const { tailMs, signal, ...rest } = group
  using tail = new AbortScope(signal, tailMs, () => lateReward('the group reward', tailMs))
  return await scoreGroup(environment, { ...rest, signal: tail.signal })
}

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
function lateReward(what: 'the reward' | 'the group reward', tailMs: number): MillraceError {
  return new MillraceError('reward_failed', `${what} took longer than the ${tailMs} ms reserved for it (limits.tailMs)`)
}
