import type { NamedAgent } from '../agents/index.ts'
import type { ModelConfig } from '../inference/index.ts'
import type { GroupRules, RunSettings } from '../rollout/index.ts'
import type { Limits, Sampling } from '../schema/index.ts'
import type { Fork } from './replay/fork.ts'
import type { ToolFormatName } from '../tool-formats/index.ts'

/** Everything that was asked for, with defaults filled in: stored with the run, without secrets. */
export interface RunConfig {
  readonly environment: {
    readonly name: string
    readonly specifier: string | null
    /** `moduleName` of the specifier; null, or missing, if the environment is no module. */
    readonly module?: string | null
    readonly options: unknown
    /** The options that only say where something is; left out if there are none. */
    readonly addresses?: readonly string[]
  }
  readonly models: readonly ModelConfig[]
  readonly model: string
  readonly judge: string
  readonly attempts: number
  readonly group: GroupRules
  readonly concurrency: number
  readonly judgeConcurrency: number
  readonly limit: number | null
  readonly limits: Limits
  readonly sampling: Sampling
  readonly seed: number | null
  /** Left out where the environment has its own, or the tool loop. */
  readonly agent?: NamedAgent
  /** Left out where calls are native. */
  readonly toolFormat?: ToolFormatName
  readonly captureTokens: boolean
  /** Left out where rollouts may be any number of versions behind. */
  readonly maxVersionsBehind?: number
  readonly retries: number
  readonly maxCostUsd: number | null
  readonly passThreshold: number
  /** Null where rollouts run on the caller's own thread. */
  readonly workers: number | null
  readonly forkedFrom?: Fork['from']
}

/** The settings of a run's rollouts. `asked` names the models that are known to be asked. */
export function runSettings(
  config: Omit<RunSettings, 'asked' | 'sendSeed'> & Pick<RunConfig, 'models' | 'seed'>,
  asked: readonly string[],
): RunSettings {
  const { model, judge, judgeConcurrency, limits, sampling, captureTokens, maxVersionsBehind, seed } = config
  const { agent, toolFormat } = config
  return {
    model,
    judge,
    asked,
    judgeConcurrency,
    limits,
    sampling,
    captureTokens,
    ...(maxVersionsBehind !== undefined && { maxVersionsBehind }),
    ...(agent && { agent }),
    ...(toolFormat && { toolFormat }),
    // A simulator always answers one conversation alike, so without a seed all attempts at a task would be the same.
    sendSeed: seed !== null || isSimulated(config),
  }
}

export function isSimulated({ models, model }: Pick<RunConfig, 'models' | 'model'>): boolean {
  return models.some(({ name, simulator }) => name === model && simulator !== undefined)
}
