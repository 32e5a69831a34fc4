import { setImmediate as nextTurn } from 'node:timers/promises'
import { toolLoop } from '../agents/index.ts'
import { hasGroupReward, type Environment } from '../env/index.ts'
import {
  decodePool,
  preflight,
  type Backend,
  type ModelConfig,
  type ModelStatus,
  type WorkerLimits,
} from '../inference/index.ts'
import { closeAll, Resource, Semaphore, type Variables } from '../kit/index.ts'
import type { Journal } from '../store/index.ts'
import type { ToolServerStatus } from '../tools/index.ts'
import { BlockedRewards } from './blocked-rewards.ts'
import { callStyleOf } from './call-style-of.ts'
import type { RunServices } from './run-services.ts'
import type { Executor, GroupScores, OffloadStatus, WorkerStatus } from './executor.ts'
import { heavyRewardModule } from './heavy-reward-module.ts'
import type { AttemptResult, GroupJob, RolloutJob, RunSettings } from './job.ts'
import { ModelSet } from './open-models.ts'
import { recordLimitChange } from './record-limit-change.ts'
import type { EnvironmentModule } from './reward-pool-messages.ts'
import { RewardPool } from './reward-pool.ts'
import { runRollout } from './run-rollout.ts'
import { scoreGroupInTime } from './score-group-in-time.ts'
import { Toolkit } from './toolkit.ts'

export interface InlineExecutorOptions {
  readonly environment: Environment
  readonly options: unknown
  readonly settings: RunSettings
  readonly models: readonly ModelConfig[]
  readonly env: Variables
  readonly journal: Journal
  readonly backends?: Readonly<Record<string, readonly Backend[]>>
  /** Where the environment came from: heavy rewards run on threads that load it themselves. */
  readonly module?: EnvironmentModule
  /** How many threads heavy rewards may use: this executor's share of the processors. */
  readonly rewardThreads?: number
  /** Whether the environment's tool servers are opened; a replay goes without. True if not given. */
  readonly opensServers?: boolean
  /** Limits shared with other workers, permits of the name `judgePermits` among them. The executor does not close them. */
  readonly limits?: WorkerLimits
}

/** The permits for calls of judges, in limits that workers share. */
export const judgePermits = 'judge'

/** Runs rollouts on the thread it was made on. */
export class InlineExecutor extends Resource implements Executor {
  readonly #models: ModelSet
  readonly #toolkit: Toolkit
  readonly #services: RunServices

  constructor(parts: InlineExecutorOptions) {
    super()
    const { environment, options, settings, models, env, journal, backends, limits } = parts
    const module = heavyRewardModule(environment, parts.module)
    // Closes the parts that are open already if a later one cannot be opened.
    using opened = new DisposableStack()
    this.#toolkit = new Toolkit(environment, options, journal, parts.opensServers)
    opened.defer(() => void this.#toolkit.close())
    this.#models = new ModelSet({
      configs: models,
      env,
      ...(backends && { backends }),
      ...(limits && { limits }),
      onLimitChange: (change) => recordLimitChange(journal, change),
    })
    opened.defer(() => void this.#models.close())
    this.#services = {
      environment,
      options,
      agent: environment.agent ?? toolLoop(),
      settings,
      journal,
      toolkit: this.#toolkit,
      callStyle: callStyleOf(settings),
      judgePermits: limits?.permits(judgePermits) ?? new Semaphore(settings.judgeConcurrency),
      rewardPool: module && new RewardPool({ ...module, maxThreads: parts.rewardThreads }),
      blockedRewards: new BlockedRewards(environment.name, journal),
      model: (name) => this.#models.get(name),
    }
    opened.move()
    this.#toolkit.warm()
  }

  run(job: RolloutJob, signal: AbortSignal): Promise<AttemptResult> {
    if (this.#toolkit.isAwaited) return this.#runLater(job, signal)
    return job.attempt === 1 ? runRollout(job, this.#services, signal) : this.#runAgain(job, signal)
  }

  /** Does not start a rollout before its tool servers are back, so that none of its time passes. */
  async #runLater(job: RolloutJob, signal: AbortSignal): Promise<AttemptResult> {
    try {
      await this.#toolkit.available(signal)
    } catch {
      // It was cancelled, and its record says so.
    }
    return await runRollout(job, this.#services, signal)
  }

  /** A rollout that fails at once, again and again, must not block the loop for all others. */
  async #runAgain(job: RolloutJob, signal: AbortSignal): Promise<AttemptResult> {
    await nextTurn()
    return runRollout(job, this.#services, signal)
  }

  async scoreGroup({ task, members }: GroupJob, signal: AbortSignal): Promise<GroupScores> {
    const { environment, options } = this.#services
    if (!hasGroupReward(environment)) return {}
    const { tailMs } = this.#services.settings.limits
    return await scoreGroupInTime(environment, { task: task.data, options, members, tailMs, signal })
  }

  async preflight(signal: AbortSignal): Promise<readonly string[]> {
    const { asked, model, captureTokens } = this.#services.settings
    const [notices] = await Promise.all([
      Promise.all(
        asked.map((name) =>
          preflight(this.#models.get(name), signal, { captureTokens: captureTokens && name === model }),
        ),
      ),
      this.#toolkit.preflight(signal),
    ])
    return notices.flat()
  }

  get takesWork(): boolean {
    return !this.isClosed
  }

  models(): readonly ModelStatus[] {
    return this.#models.all().map((model) => model.status())
  }

  workers(): readonly WorkerStatus[] {
    return []
  }

  servers(): readonly ToolServerStatus[] {
    return this.#toolkit.servers()
  }

  /** These tool servers were open on another worker. */
  noteOpened(servers: readonly string[]): void {
    this.#toolkit.noteOpened(servers)
  }

  offload(): readonly OffloadStatus[] {
    const { threads, queued, waitP99Ms } = decodePool.status()
    const rewards = this.#services.rewardPool?.status()
    return [
      { name: 'decode', threads, queued, waitP99Ms },
      ...(rewards
        ? [{ name: 'reward' as const, threads: rewards.size, queued: rewards.queued, waitP99Ms: rewards.waitP99Ms }]
        : []),
    ]
  }

  protected onClose(): Promise<void> {
    return closeAll([this.#models, this.#services.rewardPool, this.#toolkit])
  }
}
