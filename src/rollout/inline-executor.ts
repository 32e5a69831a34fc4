import { toolLoop } from '../agents/index.ts'
import { hasGroupReward, scoreGroup, type Environment } from '../env/index.ts'
import { preflight, type Backend, type ModelConfig, type ModelStatus } from '../inference/index.ts'
import { MillraceError } from '../errors/index.ts'
import { AbortScope, Resource, Semaphore } from '../kit/index.ts'
import type { Journal } from '../store/index.ts'
import { ToolBox } from '../tools/index.ts'
import type { Engine } from './engine.ts'
import type { Executor, GroupScores, WorkerStatus } from './executor.ts'
import type { AttemptResult, GroupJob, RolloutJob, RunSettings } from './job.ts'
import { ModelSet } from './open-models.ts'
import { runRollout } from './run-rollout.ts'

export interface InlineExecutorOptions {
  readonly environment: Environment
  readonly options: unknown
  readonly settings: RunSettings
  readonly models: readonly ModelConfig[]
  readonly env: Readonly<Record<string, string | undefined>>
  readonly journal: Journal
  readonly backends?: Readonly<Record<string, readonly Backend[]>>
}

/** Runs rollouts on the thread it was made on. */
export class InlineExecutor extends Resource implements Executor {
  readonly #models: ModelSet
  readonly #engine: Engine

  constructor({ environment, options, settings, models, env, journal, backends }: InlineExecutorOptions) {
    super()
    this.#models = new ModelSet({
      configs: models,
      env,
      ...(backends && { backends }),
      onLimitChange: (change) => {
        journal.append({
          kind: 'event',
          rollout: null,
          attempt: 0,
          name: 'limit-change',
          at: change.at,
          data: JSON.stringify(change),
        })
      },
    })
    this.#engine = {
      environment,
      options,
      agent: environment.agent ?? toolLoop(),
      settings,
      journal,
      tools: new ToolBox(environment.tools ?? {}),
      judgePermits: new Semaphore(settings.judgeConcurrency),
      model: (name) => this.#models.get(name),
    }
  }

  run(job: RolloutJob, signal: AbortSignal): Promise<AttemptResult> {
    return runRollout(job, this.#engine, signal)
  }

  async scoreGroup({ task, members }: GroupJob, signal: AbortSignal): Promise<GroupScores> {
    const { environment, options } = this.#engine
    if (!hasGroupReward(environment)) return {}
    const { tailMs } = this.#engine.settings.limits
    using tail = new AbortScope(signal, tailMs, () => {
      return new MillraceError('reward_failed', `the group reward took longer than the ${tailMs} ms kept for it`)
    })
    return await scoreGroup(environment, { task: task.data, options, members, signal: tail.signal })
  }

  preflight(signal: AbortSignal): Promise<void> {
    return preflight(this.#models.get(this.#engine.settings.model), signal)
  }

  models(): readonly ModelStatus[] {
    return this.#models.all().map((model) => model.status())
  }

  workers(): readonly WorkerStatus[] {
    return []
  }

  protected onClose(): Promise<void> {
    return this.#models.close()
  }
}
