import type { Limits, RolloutRecord, Sampling } from '../schema/index.ts'
import type { ToolFormatName } from '../tools/index.ts'
import type { RecordedWork } from './recorded-work.ts'
import type { Cassette } from './replay-cassette.ts'

/** What a rollout is asked with: the same for each of its attempts. */
export interface RolloutTerms {
  readonly task: { readonly index: number; readonly id: string; readonly data: unknown }
  /** Wins over the run's sampling, for this rollout alone. */
  readonly sampling?: Sampling
  /** Recorded answers that the rollout gets in place of those of models, tools and judges, as far as they go. */
  readonly cassette?: Cassette
  /** Replaces parts of what the environment's prompt says. */
  readonly opening?: Opening
}

/** One attempt at one task. A plain cloneable value: it runs the same on this thread, another, or another machine. */
export interface RolloutJob extends RolloutTerms {
  readonly id: string
  readonly attempt: number
  readonly sample: number
  readonly seed: number
  /** Present if the attempt goes on where an earlier sitting was cut off. An attempt that starts over has none. */
  readonly recorded?: RecordedWork
}

/** Another beginning of a conversation. */
export interface Opening {
  /** Takes the place of the system message, or goes before everything else. */
  readonly system?: string
  /** Takes the place of the first user message. */
  readonly prompt?: string
}

/** The settings of every rollout of a run. Plain and cloneable as well. */
export interface RunSettings {
  readonly model: string
  readonly judge: string
  /** The models that are known to be asked: a preflight asks each of them for a word. */
  readonly asked: readonly string[]
  readonly judgeConcurrency: number
  readonly limits: Limits
  readonly sampling: Sampling
  readonly captureTokens: boolean
  /** The format of tool calls, for models that write them into their text. */
  readonly toolFormat?: ToolFormatName
  /** Whether each request carries a seed, derived from the rollout's. */
  readonly sendSeed: boolean
  /** Where tool outputs are kept that are too long to show. An environment that keeps them needs it. */
  readonly outputsFolder?: string
}

export type AttemptResult =
  | { readonly kind: 'ended'; readonly record: RolloutRecord; readonly leaf: number | null }
  /** The agent did not repeat what the journal holds: the rollout must start over as a new attempt. */
  | { readonly kind: 'diverged'; readonly why: string }
  /**
   * The worker that the attempt ran on died, and nobody knows how far it came. `again`: the rollout may be innocent and starts
   * over, which costs it none of its retries. The other two verdicts end the rollout. The executor bounds how often it says
   * `again`.
   */
  | { readonly kind: 'lost'; readonly why: string; readonly verdict: 'again' | 'worker_lost' | 'poisoned' }

/** A whole group to be scored together. Only members that may carry a reward are in it. */
export interface GroupJob {
  readonly task: { readonly index: number; readonly id: string; readonly data: unknown }
  readonly members: readonly RolloutRecord[]
}
