import type { Outcome } from '../schema/index.ts'
import type { SessionEntry } from './session-entry.ts'

/**
 * The journal's entries: flat values, so that handing a batch to the writer thread is cheap. JSON in them is text already and is
 * never parsed on the way to the disk.
 */
export type JournalEntry = TaskEntry | AttemptStart | NodeEntry | EventEntry | AttemptEnd | RolloutEnd | SessionEntry

export interface TaskEntry {
  readonly kind: 'task'
  readonly index: number
  readonly id: string
  /** Of the row, which is stored once under it, however many tasks have it. */
  readonly digest: string
  /** The task's row as JSON, before the environment's schema; absent if it is no JSON. */
  readonly row?: string | undefined
}

export interface AttemptStart {
  readonly kind: 'attempt-start'
  readonly rollout: string
  readonly attempt: number
  /** The rollout that started this one as its child; null for the run's own rollouts. */
  readonly parent: string | null
  readonly task: number
  readonly sample: number
  readonly at: number
}

export interface NodeEntry {
  readonly kind: 'node'
  readonly rollout: string
  readonly attempt: number
  readonly seq: number
  readonly parent: number | null
  readonly hash: string
  readonly message: string
  readonly sampled: boolean
  readonly at: number
  /** JSON of a `NodeMeta` (_stored-nodes.ts): how the message came to be, and what the arrays below stand for. */
  readonly meta: string | null
  readonly promptIds?: Int32Array
  readonly ids?: Int32Array
  readonly logprobs?: Float32Array
  readonly version?: string
  readonly routedExperts?: Uint8Array
}

/** Anything else worth keeping: a limit that moved, a worker that died. `rollout` is null for events of the run. */
export interface EventEntry {
  readonly kind: 'event'
  readonly rollout: string | null
  readonly attempt: number
  readonly name: string
  readonly at: number
  readonly data: string
}

/** An attempt is over, but its rollout is not: it starts over, or waits for its group. */
export interface AttemptEnd {
  readonly kind: 'attempt-end'
  readonly rollout: string
  readonly attempt: number
  readonly at: number
  readonly outcome: Outcome
  /** The attempt's result stands and only waits for the rest of its group. */
  readonly isHeld: boolean
  /** JSON of the RolloutRecord without `messages`. */
  readonly record: string
  /** The node that the conversation ends with. */
  readonly leaf: number | null
}

/** The accepted result; at most one per rollout. The line of `rollouts.jsonl` is `record` with `messages` put in. */
export interface RolloutEnd {
  readonly kind: 'rollout-end'
  readonly rollout: string
  readonly attempt: number
  readonly task: number
  readonly sample: number
  readonly at: number
  readonly outcome: Outcome
  readonly reward: number | null
  readonly record: string
  readonly leaf: number | null
  /** JSON of each message, in order. */
  readonly messages: readonly string[]
}
