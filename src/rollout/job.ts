import type { Limits, MessageNode, RolloutRecord, Sampling } from '../schema/index.ts'

/** One attempt at one task. A plain cloneable value: it runs the same on this thread, another, or another machine. */
export interface RolloutJob {
  readonly id: string
  readonly attempt: number
  readonly sample: number
  readonly task: { readonly index: number; readonly id: string; readonly data: unknown }
  readonly seed: number
  /** Wins over what the run says, for this rollout alone. */
  readonly sampling?: Sampling
  /** What an earlier sitting recorded for this attempt, by rollout id: its own nodes and its children's. */
  readonly journalled?: Readonly<Record<string, readonly MessageNode[]>>
}

/** What holds for every rollout of a run. Plain and cloneable as well. */
export interface RunSettings {
  readonly model: string
  readonly judge: string
  readonly judgeConcurrency: number
  readonly limits: Limits
  readonly sampling: Sampling
  readonly captureTokens: boolean
  /** Whether each request carries a seed, derived from the rollout's. */
  readonly sendSeed: boolean
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
