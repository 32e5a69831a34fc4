import type { WireError } from '../errors/index.ts'
import type { ModelConfig, ModelStatus } from '../inference/index.ts'
import type { LoopLagWindow } from '../kit/index.ts'
import type { AttemptResult, GroupJob, GroupScores, OffloadStatus, RolloutJob, RunSettings } from '../rollout/index.ts'
import type { MetricsDelta, TelemetryOptions } from '../telemetry/index.ts'
import type { ToolServerStatus } from '../tools/index.ts'
import type { StrayError } from './stray-errors.ts'

/** What every worker of a pool is started with. An environment is a module: the worker loads it by itself. */
export interface WorkerStart {
  readonly specifier: string
  readonly options: Readonly<Record<string, unknown>>
  readonly settings: RunSettings
  readonly models: readonly ModelConfig[]
  /** How many workers share the machine. */
  readonly workers: number
  /** Whether the worker counts and traces, and under which run's name. */
  readonly telemetry?: Pick<TelemetryOptions, 'run' | 'metrics'>
}

/** What a worker can be asked to do. */
export type WorkerRequest =
  | { readonly kind: 'run'; readonly job: RolloutJob }
  | { readonly kind: 'score-group'; readonly job: GroupJob }
  | { readonly kind: 'preflight' }

export type WorkerResult = AttemptResult | GroupScores | readonly string[]

export type ToWorker =
  | (WorkerRequest & { readonly call: number })
  | { readonly kind: 'abort'; readonly call: number; readonly reason: WireError }
  /** Tool servers that were open on some worker. */
  | { readonly kind: 'servers-opened'; readonly servers: readonly string[] }
  | { readonly kind: 'close' }

export type FromWorker =
  | { readonly kind: 'ready' }
  | { readonly kind: 'start-failed'; readonly error: WireError }
  | { readonly kind: 'done'; readonly call: number; readonly value: WorkerResult }
  | { readonly kind: 'failed'; readonly call: number; readonly error: WireError }
  | WorkerReport
  | { readonly kind: 'stray-error'; readonly error: StrayError }
  | LastWords

/** A worker's status, sent four times a second: a worker that is silent for longer is blocked, or gone. */
export interface WorkerReport {
  readonly kind: 'status'
  readonly models: readonly ModelStatus[]
  readonly offload: readonly OffloadStatus[]
  readonly servers: readonly ToolServerStatus[]
  readonly lag: LoopLagWindow
  readonly memoryBytes: number
  /** What the worker counted since its last report. */
  readonly metrics?: MetricsDelta
}

/** The last message of a worker that its own code ends: in which call that code ran, and what it threw. */
export interface LastWords {
  readonly kind: 'last-words'
  readonly call?: number
  readonly error?: StrayError
}
