import { type Environment, scoreGroup, type ScoreResult, scoreRollout } from '../../env/index.ts'
import { AbortScope } from '../../kit/index.ts'
import { outcomes, type RolloutRecord } from '../../schema/index.ts'
import type { AgentRun } from '../agent/agent-run.ts'
import { type AgentEnd, failedEnd } from '../result/outcome.ts'
import type { GroupScores } from '../schedule/executor.ts'
import { lateReward, RewardTime, scoreOnThread } from './reward-time.ts'

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
