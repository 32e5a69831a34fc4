import type { ModelConfig } from '../inference/index.ts'
import type { GroupRules } from '../rollout/index.ts'
import type { Limits, Sampling } from '../schema/index.ts'
import type { ToolFormatName } from '../tools/index.ts'
import type { Fork } from './replay/fork.ts'

/** Everything that was asked for, with defaults filled in: stored with the run, without secrets. */
export interface RunConfig {
  readonly environment: {
    readonly name: string
    readonly specifier: string | null
    /** `moduleName` of the specifier; null, or missing, if the environment is no module. */
    readonly module?: string | null
    readonly options: unknown
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
  /** Left out where calls are native. */
  readonly toolFormat?: ToolFormatName
  readonly captureTokens: boolean
  readonly retries: number
  readonly maxCostUsd: number | null
  readonly passThreshold: number
  /** Null where rollouts run on the caller's own thread. */
  readonly workers: number | null
  /** The rollout that this run was forked from, if it was. */
  readonly forkedFrom?: Fork['from']
}
