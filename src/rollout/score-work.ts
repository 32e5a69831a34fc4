import { scoreRollout, type ScoreResult, type ScoringPlace } from '../env/index.ts'
import { outcomes } from '../schema/index.ts'
import type { AgentEnd } from './agent-end.ts'
import type { AgentRun } from './agent-run.ts'
import { failedEnd } from './failed-end.ts'
import { RewardTime } from './reward-time.ts'
import { scoreElsewhere } from './score-elsewhere.ts'

export interface ScoredWork {
  readonly end: AgentEnd
  readonly score?: ScoreResult
  /** How long the reward waited for a judge, a thread or its turn to run a command. */
  readonly waitedMs?: number
}

/** The reward, if the end allows one. A promise only where a reward is asynchronous. */
export function scoreWork(run: AgentRun, end: AgentEnd, signal: AbortSignal): ScoredWork | Promise<ScoredWork> {
  if (!outcomes[end.outcome].scored) return { end }
  const { services, context, budget } = run
  const { limits } = services.settings
  const time = new RewardTime({ limits, wallMs: budget.wallMsLeft + limits.tailMs, signal })
  run.requests.rewardClock = time.clock
  context.turnToReward(end.outcome, time)
  try {
    const score = scoreRollout(services.environment, context, scoringPlace(run, time))
    if (score instanceof Promise) return scoreInTime(score, end, { time, signal })
    time[Symbol.dispose]()
    return { end, score }
  } catch (error) {
    return failed(error, { time, signal })
  }
}

async function scoreInTime(
  scoring: Promise<ScoreResult>,
  end: AgentEnd,
  limit: { time: RewardTime; signal: AbortSignal },
): Promise<ScoredWork> {
  const { clock } = limit.time
  clock.watch()
  try {
    const score = await scoring
    limit.time[Symbol.dispose]()
    return { end, score, waitedMs: clock.waitedMs }
  } catch (error) {
    return failed(error, limit)
  }
}

function failed(error: unknown, { time, signal }: { time: RewardTime; signal: AbortSignal }): ScoredWork {
  // Components that still run must not work on a state that is about to be torn down.
  time.scope.abort(error)
  time[Symbol.dispose]()
  return { end: failedEnd(error, 'reward_failed', { signal }), waitedMs: time.clock.waitedMs }
}

function scoringPlace({ services, liveRollout, context }: AgentRun, { clock }: RewardTime): ScoringPlace {
  const onBlocked = services.blockedRewards.note
  const { rewardPool } = services
  if (!rewardPool) return { onBlocked }
  return { onBlocked, scoreElsewhere: scoreElsewhere(rewardPool, { context, liveRollout, clock }) }
}
