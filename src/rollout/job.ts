import type { Limits, RolloutRecord, Sampling } from '../schema/index.ts'
import type { ToolFormatName } from '../tools/index.ts'
import type { RecordedWork } from './recorded-work.ts'
import type { Cassette } from './replay-cassette.ts'

/** What a rollout is asked with, whichever of its attempts it is. */
export interface RolloutTerms {
  readonly task: { readonly index: number; readonly id: string; readonly data: unknown }
  /** Wins over what the run says, for this rollout alone. */
  readonly sampling?: Sampling
  /** What it hears from outside, as far as that goes, in place of models, tools and judges. */
  readonly cassette?: Cassette
  /** Said in place of what the environment's prompt says. */
  readonly opening?: Opening
}

/** One attempt at one task. A plain cloneable value: it runs the same on this thread, another, or another machine. */
export interface RolloutJob extends RolloutTerms {
  readonly id: string
  readonly attempt: number
  readonly sample: number
  readonly seed: number
  /** If it goes on where an earlier sitting was cut off. What starts over has none of it. */
  readonly recorded?: RecordedWork
}

/** Another beginning of a conversation. */
export interface Opening {
  /** Takes the place of the system message, or goes before everything else. */
  readonly system?: string
  /** Takes the place of the first user message. */
  readonly prompt?: string
}

/** What holds for every rollout of a run. Plain and cloneable as well. */
export interface RunSettings {
  readonly model: string
  readonly judge: string
  readonly judgeConcurrency: number
  readonly limits: Limits
  readonly sampling: Sampling
  readonly captureTokens: boolean
  /** For models that write tool calls into their text. */
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
   * The worker it ran on died, and nobody knows how far it came. `again`: it may be innocent and starts over, which costs
   * it none of its retries. The other two are its end. Whoever answers so bounds how often it says `again`.
   */
  | { readonly kind: 'lost'; readonly why: string; readonly verdict: 'again' | 'worker_lost' | 'poisoned' }

/** A whole group to be scored together. Only members that may carry a reward are in it. */
export interface GroupJob {
  readonly task: { readonly index: number; readonly id: string; readonly data: unknown }
  readonly members: readonly RolloutRecord[]
}
