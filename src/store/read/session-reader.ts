import type { DatabaseSync, StatementSync } from 'node:sqlite'
import { isCorrupt } from '../run/failures.ts'
import { isJsonObject, type JsonObject, type MessageNode } from '../../schema/index.ts'
import type { BlobStore } from '../write/blob-store.ts'
import { damaged, damagedSession, isDamage, isUnavailable } from './damage.ts'
import { pages } from '../write/database.ts'
import { type NodeWithoutTokens, type StoredNodes } from './stored-nodes.ts'
import { sessionAttempt, type SessionEndReason, wholeSession } from '../write/journal.ts'

export interface StoredSession {
  readonly id: string
  readonly group: string
  readonly tenant: string
  readonly keyDigest: string
  readonly startedAt: number
  /** The session's other properties. Decoded on access, which throws if they are damaged. */
  readonly data: JsonObject
  readonly end?: { readonly at: number; readonly why: SessionEndReason }
}

export interface StoredReward {
  /** The sampled node that the reward is for; null for the session as a whole. */
  readonly node: number | null
  readonly value: number
  readonly at: number
}

export interface SessionQuery {
  readonly tenant?: string
  readonly group?: string
  readonly state?: 'open' | 'ended'
  readonly after?: string
  /** `newest`: the newest first, for those who look at a few. */
  readonly order?: 'oldest' | 'newest'
  readonly limit: number
}

export interface SessionCounts {
  readonly open: number
  readonly ended: number
}

const attempt = sessionAttempt

/** The columns without `data`, which is read alone: it may be long, and a damaged page of it costs its own session only. */
const facts = 'position, id, group_id, tenant, key_digest, started_at, ended_at, end_reason'

/** Reads the sessions of a gateway. Durable entries are visible at once. Obtained from a `RunReader`. */
export class SessionReader {
  readonly #database: DatabaseSync
  readonly #blobs: BlobStore
  readonly #nodes: StoredNodes
  readonly #byId: StatementSync
  readonly #byKey: StatementSync
  readonly #data: StatementSync
  readonly #rewards: StatementSync
  readonly #named: StatementSync

  constructor(run: { database: DatabaseSync; blobs: BlobStore; nodes: StoredNodes }) {
    const { database } = run
    this.#database = database
    this.#blobs = run.blobs
    this.#nodes = run.nodes
    this.#byId = database.prepare(`SELECT ${facts} FROM session WHERE id = ?`)
    this.#byKey = database.prepare(`SELECT ${facts} FROM session WHERE key_digest = ? ORDER BY position DESC LIMIT 1`)
    this.#data = database.prepare('SELECT data FROM session WHERE position = ?')
    this.#rewards = database.prepare('SELECT node, value, at FROM reward WHERE session = ? ORDER BY node')
    this.#named = database.prepare(
      `SELECT seq FROM node WHERE rollout = ? AND attempt = ${attempt} AND meta ->> '$.undelivered' IS NULL
         AND meta ->> '$.call.replyId' = ? ORDER BY position`,
    )
  }

  session(id: string): StoredSession | undefined {
    const row = this.#byId.get(id)
    return row && this.#session(row as SessionRow)
  }

  /** The latest session with this key. */
  sessionByKeyDigest(digest: string): StoredSession | undefined {
    const row = this.#byKey.get(digest)
    return row && this.#session(row as SessionRow)
  }

  counts(): SessionCounts {
    const count = (rows: string): number =>
      this.#database.prepare(`SELECT count(*) AS n FROM session ${rows}`).get()?.['n'] as number
    const open = count('INDEXED BY session_open WHERE ended_at IS NULL')
    return { open, ended: count('') - open }
  }

  sessions(query: SessionQuery): StoredSession[] {
    const { tenant, group, state, after, order, limit } = query
    const conditions: string[] = []
    const values: (string | number)[] = []
    const require = (condition: string, value: string | undefined): void => {
      if (value === undefined) return
      conditions.push(condition)
      values.push(value)
    }
    require('group_id = ?', group)
    require('tenant = ?', tenant)
    // If the session does not exist, the subquery is null and nothing matches.
    require(`position ${order === 'newest' ? '<' : '>'} (SELECT position FROM session WHERE id = ?)`, after)
    if (state !== undefined) conditions.push(`ended_at IS ${state === 'open' ? '' : 'NOT '}NULL`)
    const where = conditions.length > 0 ? `WHERE ${conditions.join(' AND ')}` : ''
    const statement = this.#database.prepare(
      `SELECT ${facts} FROM session ${indexFor(query)} ${where} ORDER BY position ${order === 'newest' ? 'DESC' : ''} LIMIT ?`,
    )
    return statement.all(...values, limit).map((row) => this.#session(row as SessionRow))
  }

  *each(query: Omit<SessionQuery, 'after' | 'order' | 'limit'> = {}): Generator<StoredSession, void, void> {
    yield* pages<StoredSession>((last, limit) => this.sessions({ ...query, ...(last && { after: last.id }), limit }))
  }

  /** Every message of a session, in the order it was recorded. A few are held at a time. */
  nodesOf(session: string): Generator<MessageNode, void, void> {
    return this.#nodes.of(session, attempt)
  }

  bareNodesOf(session: string): Generator<NodeWithoutTokens, void, void> {
    return this.#nodes.bareOf(session, attempt)
  }

  bareNode(session: string, seq: number): NodeWithoutTokens | undefined {
    return this.#nodes.bareAt(session, attempt, seq)
  }

  lastSeq(session: string): number | undefined {
    return this.#nodes.lastSeq(session, attempt)
  }

  /** The complete replies with this id, the oldest first: a backend may use an id twice. */
  repliesNamed(session: string, replyId: string): number[] {
    return this.#named.all(session, replyId).map(({ seq }) => seq as number)
  }

  /** The reward for the whole session first, then those by node. */
  rewardsOf(session: string): StoredReward[] {
    return this.#rewardRows(session).map((row) => {
      const { node, value, at } = row as { node: number; value: number; at: number }
      return { node: node === wholeSession ? null : node, value, at }
    })
  }

  #rewardRows(session: string): unknown[] {
    try {
      return this.#rewards.all(session)
    } catch (error) {
      throw isCorrupt(error) ? damaged(`the rewards of session ${session}`, error) : error
    }
  }

  /** The first complete reply of a session that came without prompt ids, ids or log-probabilities, if there is one. */
  firstWithoutTokens(session: string): number | undefined {
    return this.#nodes.firstWithoutTokens(session, attempt)
  }

  #session(row: SessionRow): StoredSession {
    const { position, id, tenant, ended_at: endedAt, end_reason: why } = row
    const data = (): JsonObject => this.#sessionData(id, position)
    return {
      id,
      group: row.group_id,
      tenant,
      keyDigest: row.key_digest,
      startedAt: row.started_at,
      get data(): JsonObject {
        return data()
      },
      ...(endedAt !== null && why !== null && { end: { at: endedAt, why } }),
    }
  }

  #sessionData(id: string, position: number): JsonObject {
    try {
      const value: unknown = JSON.parse(this.#blobs.text(this.#data.get(position)?.['data']))
      if (!isJsonObject(value)) throw new Error('it is not an object')
      return value
    } catch (error) {
      throw isDamage(error) || isUnavailable(error) ? error : damagedSession(id, error)
    }
  }
}

/** SQLite keeps no statistics here: for a group it would read a whole tenant, and for open sessions all ended ones. */
function indexFor({ tenant, group, state }: SessionQuery): string {
  if (group !== undefined) return 'INDEXED BY session_group'
  if (state === 'open') return 'INDEXED BY session_open'
  return tenant === undefined ? '' : 'INDEXED BY session_tenant'
}

// An alias, not an interface: only aliases can be asserted from the index signature that node:sqlite returns.
type SessionRow = {
  position: number
  id: string
  group_id: string
  tenant: string
  key_digest: string
  started_at: number
  ended_at: number | null
  end_reason: SessionEndReason | null
}
