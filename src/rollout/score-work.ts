import { scoreRollout, type ScoreResult, type ScoringPlace } from '../env/index.ts'
import { MillraceError } from '../errors/index.ts'
import { AbortScope, StopClock, type SpentTime } from '../kit/index.ts'
import { outcomes, type Limits } from '../schema/index.ts'
import type { AgentEnd } from './agent-end.ts'
import type { AgentRun } from './agent-run.ts'
import { failedEnd } from './failed-end.ts'
import { lateReward } from './late-reward.ts'
import { scoreElsewhere } from './score-elsewhere.ts'

export interface ScoredWork {
  readonly end: AgentEnd
  readonly score?: ScoreResult
}

/** The reward, if the end allows one. A promise only where a reward is asynchronous. */
export function scoreWork(run: AgentRun, end: AgentEnd, signal: AbortSignal): ScoredWork | Promise<ScoredWork> {
  if (!outcomes[end.outcome].scored) return { end }
  const { services, context } = run
  const time = new RewardTime(run, signal)
  context.turnToReward(end.outcome, time.scope)
  try {
    const score = scoreRollout(services.environment, context, scoringPlace(run, time))
    if (score instanceof Promise) return scoreInTime(score, end, time)
    time.end()
    return { end, score }
  } catch (error) {
    return time.endWith(error)
  }
}

async function scoreInTime(scoring: Promise<ScoreResult>, end: AgentEnd, time: RewardTime): Promise<ScoredWork> {
  time.clock.watch()
  try {
    const score = await scoring
    time.end()
    return { end, score }
  } catch (error) {
    return time.endWith(error)
  }
}

/** The time kept for the reward, which the agent could not spend. */
class RewardTime {
  readonly scope: AbortScope
  readonly clock: StopClock
  readonly #run: AgentRun
  readonly #signal: AbortSignal

  constructor(run: AgentRun, signal: AbortSignal) {
    const { limits } = run.services.settings
    const { tailMs } = limits
    const scope = new AbortScope(signal)
    this.scope = scope
    this.clock = new StopClock({
      limitMs: tailMs,
      // The clock stands still while a judge is waited for, but not beyond the end of the rollout's wall time.
      wallMs: run.budget.wallMsLeft + tailMs,
      onSpent: (what) => scope.abort(late(what, limits)),
    })
    this.#run = run
    this.#signal = signal
    run.requests.rewardClock = this.clock
  }

  end(): void {
    this.scope[Symbol.dispose]()
    this.clock.stop()
    this.#run.requests.rewardClock = undefined
  }

  endWith(error: unknown): ScoredWork {
    // Components that still run must not work on a state that is about to be torn down.
    this.scope.abort(error)
    this.end()
    return { end: failedEnd(error, 'reward_failed', { signal: this.#signal }) }
  }
}

function late(what: SpentTime, { tailMs, wallTimeoutMs }: Limits): MillraceError {
  if (what === 'time') return lateReward('the reward', tailMs)
  return new MillraceError(
    'reward_failed',
    `the reward still waited for a judge or a thread when the rollout's ${wallTimeoutMs} ms (wallTimeoutMs) were used up`,
  )
}

function scoringPlace({ services, liveRollout, context }: AgentRun, { clock }: RewardTime): ScoringPlace {
  const onBlocked = services.blockedRewards.note
  const { rewardPool } = services
  if (!rewardPool) return { onBlocked }
  return { onBlocked, scoreElsewhere: scoreElsewhere(rewardPool, { context, liveRollout, clock }) }
}
