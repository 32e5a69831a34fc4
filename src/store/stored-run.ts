import type { Json, Outcome, RolloutRecord } from '../schema/index.ts'

/** The record of an attempt or rollout without its messages, which `nodes` and `rollout` return. */
export type BareRecord = Omit<RolloutRecord, 'messages'>

/** What is known of a result without reading its record. */
export interface RolloutFacts {
  readonly rollout: string
  readonly attempt: number
  readonly task: number
  readonly sample: number
  readonly outcome: Outcome
  readonly reward: number | null
  readonly endedAt: number
}

/** The accepted result of a rollout. */
export interface StoredRollout extends RolloutFacts {
  /** Decoded on access, which throws if it is damaged. */
  readonly record: BareRecord
}

/** One attempt. `end` is missing while it runs and after it was cut off. */
export interface StoredAttempt {
  readonly rollout: string
  readonly attempt: number
  readonly parent: string | null
  readonly task: number
  readonly sample: number
  readonly startedAt: number
  readonly end?: {
    readonly at: number
    readonly outcome: Outcome
    /** Decoded on access, which throws if it is damaged. */
    readonly record: BareRecord
    /** The node that the conversation ends with. */
    readonly leaf: number | null
  }
  /** The attempt does not count: its rollout started over, or its result was taken back by `retryFailed`. */
  readonly discarded: boolean
}

/** A rollout of the run itself that has no accepted result yet, by its latest attempt. */
export interface UnfinishedRollout {
  readonly rollout: string
  readonly attempt: number
  readonly task: number
  readonly sample: number
  /** `held`: the attempt ended and waits for its group. `discarded`: it does not count; run the next attempt. */
  readonly state: 'cut-off' | 'held' | 'discarded'
  /** How a held attempt ended. */
  readonly heldOutcome?: Outcome
  /** The held attempt's record. Decoded on access, which throws if it is damaged. */
  readonly heldRecord?: BareRecord
  /** The node that the held attempt's conversation ends with. */
  readonly heldLeaf?: number | null
}

/** An attempt without an accepted result. */
export interface UnacceptedAttempt {
  readonly rollout: string
  readonly attempt: number
  /** Whether the attempt may still be accepted: it runs, it was cut off, or it waits for its group. */
  readonly isOpen: boolean
  /** The attempt's record, if it ended. Decoded on access, which throws if it is damaged. */
  readonly record?: BareRecord
}

export interface StoredTask {
  readonly index: number
  readonly id: string
  readonly digest: string
  /**
   * The task's row as the environment's tasks or a request gave it, before the schema; undefined if it was no JSON, or if the run
   * is from before rows were stored. Decoded on access, which throws if it is damaged.
   */
  readonly row: Json | undefined
}

export interface StoredEvent {
  readonly rollout: string | null
  readonly attempt: number
  readonly name: string
  readonly at: number
  readonly data: Json
}

export interface RunCounts {
  readonly tasks: number
  readonly attempts: number
  readonly nodes: number
  readonly ended: number
  readonly outcomes: Readonly<Partial<Record<Outcome, number>>>
}

/** A stored result as JSON text, for callers that only pass it on. */
export interface StoredText extends RolloutFacts {
  /** Read on access, which throws if it cannot be read. Not checked to be JSON. */
  readonly text: { readonly record: string; readonly messages: readonly string[] }
}
