import type { Outcome } from '../../schema/index.ts'

export interface Journal {
  /** Queues the entry, in order. Never blocks and never fails: a broken store shows in `durable`. */
  append(entry: JournalEntry): void
  /** Queues several entries that must become durable together or not at all. */
  appendAll(entries: readonly JournalEntry[]): void
  /** What waits for the disk, as a share of what may wait: at 1 nothing new should be started. */
  readonly pressure: number
  /** Resolves when everything so far is on disk; undefined when that is so already. Rejects once the store failed. */
  durable(): Promise<void> | undefined
  /** Like `durable`, without hurry: shares the commit of a caller that is in a hurry, or waits a few milliseconds for its own. */
  durableSoon(): Promise<void> | undefined
}

/** Plain values, which the writer thread gets as clones. JSON in them is text already. Arrays own their buffers. */
export type JournalEntry =
  | TaskEntry
  | AttemptStart
  | NodeEntry
  | VersionEntry
  | EventEntry
  | AttemptEnd
  | RolloutEnd
  | SessionEntry

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
  /** JSON of a `NodeMeta` (node-format.ts): how the message came to be, and what the arrays below stand for. */
  readonly meta: string | null
  readonly promptIds?: Int32Array
  readonly ids?: Int32Array
  readonly logprobs?: Float32Array
  readonly version?: string
  readonly routedExperts?: Uint8Array
}

/** The version of the weights that a reply was sampled with, if that was found out after the reply. A session is under its id, too. */
interface VersionEntry {
  readonly kind: 'version'
  readonly rollout: string
  readonly attempt: number
  readonly node: number
  readonly version: string
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
  readonly record: string
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
  readonly messages: readonly string[]
}

/** The journal's entries about a gateway's sessions. Their nodes are stored under the session's id, attempt 0. */
type SessionEntry = SessionStart | SessionEnd | RewardEntry | DeliveryEntry

export interface SessionStart {
  readonly kind: 'session-start'
  readonly session: string
  readonly group: string
  readonly tenant: string
  /** SHA-256 of the session's key, base64url. The key itself is never written. */
  readonly keyDigest: string
  readonly at: number
  /** JSON of the session's other properties: task, metadata, limits, time to live. */
  readonly data: string
}

/** The session has ended: nothing is added to it any more. */
export interface SessionEnd {
  readonly kind: 'session-end'
  readonly session: string
  readonly at: number
  readonly why: SessionEndReason
}

export type SessionEndReason = 'ended' | 'expired'

/** Whether a client got a complete reply. Without such an entry, one did. */
interface DeliveryEntry {
  readonly kind: 'delivery'
  readonly session: string
  readonly node: number
  readonly isDelivered: boolean
}

/** A reward for one sampled node, or with null for the session as a whole. The latest one counts. */
interface RewardEntry {
  readonly kind: 'reward'
  readonly session: string
  readonly node: number | null
  readonly value: number
  readonly at: number
}

/** The attempt number under which the nodes of a session are stored. */
export const sessionAttempt = 0

/** The node number of a reward for a session as a whole: a key cannot hold a null. */
export const wholeSession = -1
