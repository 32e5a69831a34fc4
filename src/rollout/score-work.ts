import { scoreRollout, type ScoreResult, type ScoringPlace } from '../env/index.ts'
import { MillraceError } from '../errors/index.ts'
import { AbortScope, StopClock } from '../kit/index.ts'
import { outcomes } from '../schema/index.ts'
import type { AgentEnd } from './agent-end.ts'
import type { AgentRun } from './agent-run.ts'
import { failedEnd } from './failed-end.ts'

export interface ScoredWork {
  readonly end: AgentEnd
  readonly score?: ScoreResult
}

/** The reward, if the end allows one. A promise only where a reward is asynchronous. */
export function scoreWork(run: AgentRun, end: AgentEnd, signal: AbortSignal): ScoredWork | Promise<ScoredWork> {
  if (!outcomes[end.outcome].scored) return { end }
  const { engine, context } = run
  const time = new RewardTime(run, signal)
  context.turnToReward(end.outcome, time.scope)
  try {
    const score = scoreRollout(engine.environment, context, scoringPlace(run, time))
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
    const { tailMs } = run.engine.settings.limits
    const scope = new AbortScope(signal)
    this.scope = scope
    this.clock = new StopClock({
      limitMs: tailMs,
      onSpent: () => {
        scope.abort(new MillraceError('reward_failed', `the reward took longer than the ${tailMs} ms kept for it`))
      },
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

function scoringPlace({ engine, situation, context }: AgentRun, { clock, scope }: RewardTime): ScoringPlace {
  const onBlocked = engine.blockedRewards.note
  const { rewardPool } = engine
  if (!rewardPool) return { onBlocked }
  return {
    onBlocked,
    scoreElsewhere: (component, timeoutMs) => {
      const { task, rollout, messages, answer, outcome, truncated } = context
      const input = { task, rollout, messages, answer, outcome, truncated, info: situation.notes }
      return rewardPool.score({ component, input, timeoutMs, clock, signal: scope.signal })
    },
  }
}
