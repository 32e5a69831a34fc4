import { scoreRollout, type Budget, type Environment, type JudgeRequest, type ScoreResult } from '../../env/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { SampledVersions } from '../../inference/index.ts'
import { deepCopy, Resource } from '../../kit/index.ts'
import { outcomes, type AssistantMessage, type RolloutRecord } from '../../schema/index.ts'
import { ToolBox, type ServerCalls } from '../../tools/index.ts'
import { agentOutcomeOf, failedReward } from '../result/outcome.ts'
import { setUp, setupFailure, tearDown } from '../environment/setup-teardown.ts'
import type { RolloutJob, RunSettings } from '../schedule/executor.ts'
import { type EnvironmentModule, offloadedRewardModule, RewardPool } from './reward-pool.ts'
import { LiveContext, PendingRequests, type ContextHost } from '../agent/live-context.ts'
import { RewardTime, scoreOnThread } from './reward-time.ts'
import type { LiveRollout } from '../environment/live-rollout.ts'

export interface StoredScorerOptions {
  readonly environment: Environment
  readonly options: unknown
  readonly limits: RunSettings['limits']
  /** Where the environment came from: offloaded rewards run on threads that load it themselves. */
  readonly module: EnvironmentModule | undefined
  /** Whether `setup` runs; without it rewards see no state. */
  readonly runsSetup: boolean
  readonly askJudge: (request: JudgeRequest, stored: RolloutToScore, signal: AbortSignal) => Promise<AssistantMessage>
  /** Stands in for tool servers, which are not opened. */
  readonly serversFor: (stored: RolloutToScore) => ServerCalls
  readonly signal: AbortSignal
}

/** A recorded rollout, and what its rewards look at beside the record. */
export interface RolloutToScore {
  readonly record: RolloutRecord
  readonly task: RolloutJob['task']
  readonly seed: number
  readonly judgeCostUsd: () => number
}

const noTools = new ToolBox<never>({})

const unfinished = new MillraceError(
  'reward_failed',
  'its agent was stopped in the middle, when verify() failed, so there is no last answer: --retry-failed of the run goes on with it',
)

export class StoredScorer extends Resource {
  readonly #options: StoredScorerOptions
  readonly #rewardPool: RewardPool | undefined
  #hasReadState = false

  constructor(options: StoredScorerOptions) {
    super()
    this.#options = options
    const module = offloadedRewardModule(options.environment, options.module)
    this.#rewardPool = module && new RewardPool(module)
  }

  /** Whether a reward has looked at the state. The state is only what `setup` made: tools and updates did not run. */
  get hasReadState(): boolean {
    return this.#hasReadState
  }

  /** The record with its new rewards, without those of its group; or as a `reward_error`. */
  async score(stored: RolloutToScore): Promise<RolloutRecord> {
    const agentOutcome = agentOutcomeOf(stored.record)
    if (!outcomes[agentOutcome].scored) return { ...stored.record, ...failedReward(stored.record, unfinished.toWire()) }
    const { environment, limits, runsSetup, signal } = this.#options
    using time = new RewardTime({ limits, wallMs: limits.wallTimeoutMs, signal })
    time.clock.watch()
    const { scope } = time
    let state: unknown
    const servers = this.#options.serversFor(stored)
    const liveRollout = this.#liveRolloutOf(stored, servers, () => {
      this.#hasReadState = true
      return state
    })
    const { record } = stored
    const { task, options, identity: rollout } = liveRollout
    const requests = new PendingRequests()
    const hasSetup = runsSetup && environment.setup !== undefined
    try {
      if (hasSetup) {
        const context = { task, options, rollout, servers, signal: scope.signal }
        state = await setUp(environment, context).catch((thrown: unknown) => {
          throw setupFailure(thrown, scope.signal)
        })
      }
      const context = new LiveContext(this.#hostOf(stored, requests), liveRollout, scope)
      context.turnToReward(agentOutcome, time)
      const pool = this.#rewardPool
      const scored = { context, liveRollout, clock: time.clock }
      const hooks = pool && { onBlocked: () => {}, scoreOnThread: scoreOnThread(pool, scored) }
      const result = await scoreRollout(environment, context, hooks)
      return scoredRecord(record, context.outcome, liveRollout, result)
    } catch (thrown) {
      // As in a rollout, reward components that still run are told to stop.
      scope.abort(thrown)
      signal.throwIfAborted()
      const error = MillraceError.from(thrown, 'reward_failed').toWire()
      return { ...record, ...failedReward(record, error) }
    } finally {
      requests.close()
      // A failing teardown changes no score.
      if (hasSetup) await tearDown(environment, { task, options, rollout, servers, state })
    }
  }

  protected async onClose(): Promise<void> {
    await this.#rewardPool?.close()
  }

  #hostOf(stored: RolloutToScore, requests: PendingRequests): ContextHost {
    const { environment, limits, askJudge } = this.#options
    const { record } = stored
    return {
      services: { environment },
      budget: budgetLeft(stored, limits),
      messages: record.messages,
      answer: record.answer,
      tally: { toolRepairs: record.toolRepairs ?? 0, usage: record.usage },
      // The reward has a clock of its own.
      onServerAway: () => () => {},
      startChild: () => {
        const message = 'it starts a child, which needs a model: run the environment again instead of scoring it again'
        return Promise.reject(new MillraceError('reward_failed', message))
      },
      askJudge: (request, signal) => requests.run(signal, (own) => askJudge(request, stored, own)),
    }
  }

  #liveRolloutOf(stored: RolloutToScore, servers: ServerCalls, readState: () => unknown): LiveRollout {
    const { record, task, seed } = stored
    const { id, attempt, sample } = record
    return {
      job: { id, attempt, sample, task, seed },
      identity: { id, attempt, sample, seed },
      task: deepCopy(task.data),
      options: deepCopy(this.#options.options),
      tools: { box: noTools, servers, failures: [] },
      outputs: undefined,
      get state() {
        return readState()
      },
      metrics: {},
      notes: { ...record.info },
      sampled: new SampledVersions(),
    }
  }
}

/** The budget as the agent left it, children included. Judges and the time for the reward are on no budget. */
function budgetLeft({ record, judgeCostUsd }: RolloutToScore, limits: RunSettings['limits']): Budget {
  const { usage, cost, timing } = record
  const { maxTurns, maxTokens = Infinity, maxCostUsd = Infinity, timeoutMs, wallTimeoutMs, tailMs } = limits
  const costUsd = maxCostUsd === Infinity ? 0 : (cost ?? 0) - judgeCostUsd()
  return {
    // A turn is one call, the agent's or a child's.
    turnsLeft: Math.max(0, maxTurns - usage.calls),
    tokensLeft: Math.max(0, maxTokens - usage.output),
    costLeftUsd: Math.max(0, maxCostUsd - costUsd),
    workingMsLeft: Math.max(0, timeoutMs - timing.workingMs),
    wallMsLeft: Math.max(0, wallTimeoutMs - tailMs - (timing.wallMs - timing.rewardMs)),
  }
}

function scoredRecord(
  record: RolloutRecord,
  outcome: RolloutRecord['outcome'],
  { metrics, notes }: LiveRollout,
  score: ScoreResult,
): RolloutRecord {
  const { error: _error, voided: _voided, agentOutcome: _agentOutcome, ...kept } = record
  return {
    ...kept,
    outcome,
    truncated: outcomes[outcome].truncated,
    reward: score.reward,
    rewards: score.rewards,
    metrics: { ...record.metrics, ...metrics, ...score.metrics },
    ...(Object.keys(notes).length > 0 && { info: notes }),
  }
}
