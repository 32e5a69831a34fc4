/** The journal's entries about a gateway's sessions. Their nodes are stored under the session's id, attempt 0. */
export type SessionEntry = SessionStart | SessionEnd | RewardEntry | HeardEntry | VersionEntry

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

/** The session is sealed: nothing is added to it any more. */
export interface SessionEnd {
  readonly kind: 'session-end'
  readonly session: string
  readonly at: number
  readonly why: SessionEndReason
}

export type SessionEndReason = 'ended' | 'expired'

/** Whether a client got a complete reply. Without such an entry, one did. */
export interface HeardEntry {
  readonly kind: 'heard'
  readonly session: string
  readonly node: number
  readonly isHeard: boolean
}

/** The version of the weights that a reply was sampled with, if that was found out after the reply. */
export interface VersionEntry {
  readonly kind: 'version'
  readonly session: string
  readonly node: number
  readonly version: string
}

/** A reward for one sampled node, or with null for the session as a whole. The latest one counts. */
export interface RewardEntry {
  readonly kind: 'reward'
  readonly session: string
  readonly node: number | null
  readonly value: number
  readonly at: number
}
