import type { ModelStatus } from '../inference/index.ts'
import type { LoopLagWindow } from '../kit/index.ts'
import type { WorkerStatus } from '../rollout/index.ts'
import type { Outcome, Usage } from '../schema/index.ts'
import type { ToolServerStatus } from '../tools/index.ts'
import type { ScoreEstimate } from './stats/clustered-mean.ts'

/** A run at a glance, as of now: the live view draws it. */
export interface Progress {
  readonly run: string
  readonly environment: string
  readonly model: string
  /** Whether rollouts use tool servers, which are opened before the first one starts. */
  readonly hasToolServers: boolean
  readonly elapsedMs: number
  /** Rollouts to do in all; undefined for an endless or unknown source. */
  readonly total: { readonly count: number; readonly exact: boolean } | undefined
  readonly ended: number
  /** How many of the ended rollouts had ended in an earlier launch. */
  readonly resumed: number
  /** Results that wait to be read. From 256 on rollouts wait for the reader, and in the end the whole run does. */
  readonly unread: number
  readonly active: number
  readonly perSecond: number
  readonly etaMs: number | undefined
  readonly score: ScoreEstimate | undefined
  readonly outcomes: Readonly<Partial<Record<Outcome, number>>>
  readonly usage: Usage
  readonly cost: number | null
  /** The lag of the event loop of this thread, and of the thread that writes the journal. */
  readonly lag: LoopLagWindow
  readonly storeLag: LoopLagWindow
  readonly models: readonly ModelStatus[]
  readonly servers: readonly ToolServerStatus[]
  /** Empty where rollouts run on the caller's own thread. */
  readonly workers: readonly WorkerStatus[]
  readonly state: 'running' | 'draining' | 'stopping' | 'ended'
}
