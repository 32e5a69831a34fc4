import { setImmediate as nextTurn } from 'node:timers/promises'
import { agentNamed, toolLoop } from '../../agents/index.ts'
import { hasGroupReward, type Environment } from '../../env/index.ts'
import { decodePool, preflight, type ModelConfig, type ModelStatus, type WorkerLimits } from '../../inference/index.ts'
import type { Backend } from '../../apis/index.ts'
import { Resource, Semaphore, type Variables } from '../../kit/index.ts'
import type { Journal } from '../../store/index.ts'
import type { ToolServerStatus } from '../../tools/index.ts'
import { BlockedRewards } from '../reward/blocked-loops.ts'
import type { RunServices } from '../environment/live-rollout.ts'
import type {
  AttemptResult,
  Executor,
  GroupJob,
  GroupScores,
  OffloadStatus,
  RolloutJob,
  RunSettings,
  WorkerStatus,
} from './executor.ts'
import { type EnvironmentModule, offloadedRewardModule, RewardPool } from '../reward/reward-pool.ts'
import { ModelSet } from '../environment/model-set.ts'
import { recordLimitChange } from './journal-entries.ts'
import { runRollout } from '../environment/run-rollout.ts'
import { scoreGroupInTime } from '../reward/score.ts'
import { Toolkit } from '../environment/toolkit.ts'

export interface InlineExecutorOptions {
  readonly environment: Environment
  readonly options: unknown
  readonly settings: RunSettings
  readonly models: readonly ModelConfig[]
  readonly env: Variables
  readonly journal: Journal
  readonly backends?: Readonly<Record<string, readonly Backend[]>>
  /** Where the environment came from: offloaded rewards run on threads that load it themselves. */
  readonly module?: EnvironmentModule
  /** How many threads offloaded rewards may use: this executor's share of the processors. */
  readonly rewardThreads?: number
  /** Whether the environment's tool servers are opened; a replay goes without. True if not given. */
  readonly opensServers?: boolean
  /** Limits shared with other workers, permits of the name `judgePermits` among them. The executor does not close them. */
  readonly limits?: WorkerLimits
}

/** The permits for calls of judges, in limits that workers share. */
export const judgePermits = 'judge'

export class InlineExecutor extends Resource implements Executor {
  readonly #models: ModelSet
  readonly #toolkit: Toolkit
  readonly #services: RunServices

  constructor(parts: InlineExecutorOptions) {
    super()
    const { environment, options, settings, models, env, journal, backends, limits } = parts
    const module = offloadedRewardModule(environment, parts.module)
    // Closes the parts that are open already if a later one cannot be opened.
    using opened = new DisposableStack()
    this.#toolkit = new Toolkit(environment, options, journal, parts.opensServers)
    opened.defer(() => void this.#toolkit.close())
    this.#models = new ModelSet({
      configs: models,
      env,
      ...(backends && { backends }),
      ...(limits && { limits }),
      capturesTokens: settings.captureTokens,
      ...(settings.clients !== undefined && { clients: settings.clients }),
      onLimitChange: (change) => recordLimitChange(journal, change),
    })
    opened.defer(() => void this.#models.close())
    this.#services = {
      environment,
      options,
      agent: settings.agent ? agentNamed(settings.agent) : (environment.agent ?? toolLoop()),
      settings,
      journal,
      toolkit: this.#toolkit,
      judgePermits: limits?.permits(judgePermits) ?? new Semaphore(settings.judgeConcurrency),
      rewardPool: module && new RewardPool({ ...module, maxThreads: parts.rewardThreads }),
      blockedRewards: new BlockedRewards(environment.name, journal),
      model: (name) => this.#models.get(name),
    }
    opened.move()
    this.#toolkit.warm()
  }

  async run(job: RolloutJob, signal: AbortSignal): Promise<AttemptResult> {
    // None of a rollout's time passes while its tool servers are away. If it is cancelled, its record says so.
    await this.#toolkit.available(signal).catch(() => {})
    // A rollout that fails at once, again and again, must not block the loop for all others.
    if (job.attempt > 1) await nextTurn()
    return await runRollout(job, this.#services, signal)
  }

  async scoreGroup({ task, members }: GroupJob, signal: AbortSignal): Promise<GroupScores> {
    const { environment, options } = this.#services
    if (!hasGroupReward(environment)) return {}
    const { tailMs } = this.#services.settings.limits
    return await scoreGroupInTime(environment, { task: task.data, options, members, tailMs, signal })
  }

  async preflight(signal: AbortSignal): Promise<readonly string[]> {
    const { asked, model, captureTokens, maxVersionsBehind } = this.#services.settings
    const ofPolicy = { captureTokens, needsVersions: maxVersionsBehind !== undefined }
    const [notices] = await Promise.all([
      Promise.all(asked.map((name) => preflight(this.#models.get(name), signal, name === model ? ofPolicy : {}))),
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

  noteOpened(servers: readonly string[]): void {
    this.#toolkit.noteOpened(servers)
  }

  offload(): readonly OffloadStatus[] {
    const { rewardPool } = this.#services
    const pools = { decode: decodePool, ...(rewardPool && { reward: rewardPool }) }
    return Object.entries(pools).map(([name, pool]) => {
      const { threads, queued, waitP99Ms } = pool.status()
      return { name: name as OffloadStatus['name'], threads, queued, waitP99Ms }
    })
  }

  protected async onClose(): Promise<void> {
    await using parts = new AsyncDisposableStack()
    parts.use(this.#models)
    parts.use(this.#services.rewardPool)
    parts.use(this.#toolkit)
  }
}
