import type { MessagePort } from 'node:worker_threads'
import type { WireError } from '../errors/index.ts'
import type { ModelConfig, ModelStatus } from '../inference/index.ts'
import type { StrayError } from './stray-errors.ts'
import type { AttemptResult, GroupJob, GroupScores, RolloutJob, RunSettings } from '../rollout/index.ts'

/** What a rollout thread is started with. An environment is a module: the thread loads it by itself. */
export interface ThreadStart {
  readonly specifier: string
  readonly options: Readonly<Record<string, unknown>>
  readonly settings: RunSettings
  readonly models: readonly ModelConfig[]
  /** Straight to the journal's writer; the main thread is not on the way. */
  readonly journal: MessagePort
}

export type ToThread =
  | { readonly kind: 'run'; readonly call: number; readonly job: RolloutJob }
  | { readonly kind: 'score-group'; readonly call: number; readonly job: GroupJob }
  | { readonly kind: 'preflight'; readonly call: number }
  | { readonly kind: 'abort'; readonly call: number; readonly reason: WireError }
  | { readonly kind: 'close' }

export type FromThread =
  | { readonly kind: 'ready' }
  | { readonly kind: 'done'; readonly call: number; readonly value: AttemptResult | GroupScores | void }
  | { readonly kind: 'failed'; readonly call: number; readonly error: WireError }
  | { readonly kind: 'start-failed'; readonly error: WireError }
  | { readonly kind: 'status'; readonly models: readonly ModelStatus[] }
  | { readonly kind: 'stray-error'; readonly error: StrayError }
