import { channel } from 'node:diagnostics_channel'
import type { MessagePort, Worker } from 'node:worker_threads'
import type { WireError } from '../../errors/index.ts'
import type {
  GrantMessage,
  LeaseMessage,
  LimitLease,
  LimitsHandle,
  ModelConfig,
  ModelStatus,
} from '../../inference/index.ts'
import type { LoopLagWindow } from '../../kit/index.ts'
import type {
  AttemptResult,
  GroupJob,
  GroupScores,
  OffloadStatus,
  RolloutJob,
  RunSettings,
} from '../../rollout/index.ts'
import type { JournalEntry } from '../../store/index.ts'
import type { MetricsDelta, TelemetryOptions } from '../../telemetry/index.ts'
import type { ToolServerStatus } from '../../tools/index.ts'

export interface WorkerHeap {
  /** A worker that needs more than this dies, alone. */
  readonly maxOldGenerationMb?: number
  /** A smaller young generation is collected more often and for less long. */
  readonly maxYoungGenerationMb?: number
}

export interface ChannelOptions {
  readonly id: number
  readonly start: WorkerStart
  readonly heap: WorkerHeap
  readonly journal: MessagePort
  /** Takes a place in the shared limits of the models. */
  readonly lease: (send: (grant: GrantMessage) => void) => Pick<LimitLease, 'handle' | 'receive'>
  readonly onMessage: (message: FromWorker) => void
}

/** A worker as its supervisor holds it: the one difference between a thread and a process, seen from outside. */
export interface WorkerChannel {
  readonly kind: 'thread' | 'process'
  /** The thread to look into while the worker is blocked; a process cannot be looked into. */
  readonly thread?: Worker
  /** Resolves to how the worker ended, once it is gone and all its messages were received. Never rejects. */
  readonly exited: Promise<string>
  /** Sends a message; ignored if the worker is gone. Throws if something in the message cannot be cloned. */
  post(message: ToWorker): void
  /** Ends the worker at once, whatever it is doing. From now on none of its messages is received, or written for it. */
  kill(): void
}

export type OpenChannel = (options: ChannelOptions) => WorkerChannel

/** What every worker of a pool is started with. An environment is a module: the worker loads it by itself. */
export interface WorkerStart {
  readonly specifier: string
  readonly options: Readonly<Record<string, unknown>>
  readonly settings: RunSettings
  readonly models: readonly ModelConfig[]
  readonly workers: number
  /** Whether the worker counts and traces, and under which run's name. */
  readonly telemetry?: Pick<TelemetryOptions, 'run' | 'metrics'>
}

export type WorkerRequest =
  | { readonly kind: 'run'; readonly job: RolloutJob }
  | { readonly kind: 'score-group'; readonly job: GroupJob }
  | { readonly kind: 'preflight' }

export type WorkerResult = AttemptResult | GroupScores | readonly string[]

export type ToWorker =
  | (WorkerRequest & { readonly call: number })
  | { readonly kind: 'abort'; readonly call: number; readonly reason: WireError }
  | { readonly kind: 'servers-opened'; readonly servers: readonly string[] }
  | { readonly kind: 'close' }

export type FromWorker =
  | { readonly kind: 'ready' }
  | { readonly kind: 'start-failed'; readonly error: WireError }
  | { readonly kind: 'done'; readonly call: number; readonly value: WorkerResult }
  | { readonly kind: 'failed'; readonly call: number; readonly error: WireError }
  | WorkerReport
  | { readonly kind: 'unhandled-error'; readonly error: UnhandledError }
  | CrashReport

/** A worker's status, sent four times a second: a worker that is silent for longer is blocked, or gone. */
export interface WorkerReport {
  readonly kind: 'status'
  readonly models: readonly ModelStatus[]
  readonly offload: readonly OffloadStatus[]
  readonly servers: readonly ToolServerStatus[]
  readonly lag: LoopLagWindow
  readonly memoryBytes: number
  readonly metrics?: MetricsDelta
}

/** The last message of a worker that its own code ends: in which call that code ran, and what it threw. */
export interface CrashReport {
  readonly kind: 'crash-report'
  readonly call?: number
  readonly error?: UnhandledError
}

/** An error in a worker that nobody handled, such as a rejected promise that no rollout awaits. */
export interface UnhandledError {
  readonly message: string
  /** `file:line` in the user's code, where it can be told. */
  readonly place?: string
}

/** The channel on which unhandled errors are published, on the main thread; the rollouts go on. */
export const unhandledErrors = channel('millrace:unhandled-error')

/** The lease of the models' limits takes the same way as all other messages. */
export type ToThread = ToWorker | { readonly kind: 'limits'; readonly grant: GrantMessage }

export type FromThread = FromWorker | { readonly kind: 'limits'; readonly lease: LeaseMessage }

/** A process has one pipe. It carries its start data and its journal, too, which a thread gets by other ways. */
export type ToProcess =
  | ToThread
  | { readonly kind: 'start'; readonly id: number; readonly start: WorkerStart; readonly limits: LimitsHandle }
  | { readonly kind: 'journal-answer'; readonly failure: WireError | null }
  | { readonly kind: 'journal-closed' }

export type FromProcess =
  | FromThread
  | { readonly kind: 'journal'; readonly entries: readonly JournalEntry[] }
  | { readonly kind: 'journal-close' }
