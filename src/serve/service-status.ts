import type { ModelStatus } from '../inference/index.ts'
import type { LoopLagWindow } from '../kit/index.ts'
import type { WorkerStatus } from '../rollout/index.ts'
import type { Outcome } from '../schema/index.ts'
import type { ToolServerStatus } from '../tools/index.ts'
import type { CodecStatus } from './codec-pool.ts'

export type ServiceState = 'open' | 'draining' | 'failed' | 'closed'

/** What a service is doing, as a whole. */
export interface ServiceStatus {
  readonly run: string
  readonly state: ServiceState
  /** Rollouts that wait for a place, and those that have one. */
  readonly queued: number
  readonly running: number
  /** Of this sitting. */
  readonly accepted: { readonly requests: number; readonly rollouts: number }
  readonly outcomes: Readonly<Partial<Record<Outcome, number>>>
  readonly workers: readonly WorkerStatus[]
  readonly models: readonly ModelStatus[]
  readonly servers: readonly ToolServerStatus[]
  readonly codec: CodecStatus
  /** The front's own loop. */
  readonly lag: LoopLagWindow
  /** That of the thread that writes the journal. */
  readonly storeLag: LoopLagWindow
}
