/** What the journal keeps of a gateway's sessions, beside their nodes: these stand under the session's id, attempt 0. */
export type SessionEntry = SessionStart | SessionEnd | RewardEntry | HeardEntry

export interface SessionStart {
  readonly kind: 'session-start'
  readonly session: string
  readonly group: string
  readonly tenant: string
  /** SHA-256 of the session's key, base64url. The key itself is never written. */
  readonly keyDigest: string
  readonly at: number
  /** JSON of everything else that was said about it: task, metadata, limits, time to live. */
  readonly data: string
}

/** Sealed: nothing is added to it any more. */
export interface SessionEnd {
  readonly kind: 'session-end'
  readonly session: string
  readonly at: number
  readonly why: SessionEndReason
}

export type SessionEndReason = 'ended' | 'expired'

/** Whether anybody got a complete reply. As long as nothing is said of that, somebody did. */
export interface HeardEntry {
  readonly kind: 'heard'
  readonly session: string
  readonly node: number
  readonly isHeard: boolean
}

/** A reward for one sampled node, or with null for the session as a whole. The last one said counts. */
export interface RewardEntry {
  readonly kind: 'reward'
  readonly session: string
  readonly node: number | null
  readonly value: number
  readonly at: number
}
