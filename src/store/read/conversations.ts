import type { DatabaseSync, StatementSync } from 'node:sqlite'
import { isJsonObject, type Message } from '../../schema/index.ts'
import type { BlobStore } from '../write/blob-store.ts'
import { decoded, missingMessage } from './damage.ts'

/** Reads the conversation of an attempt, from the node it ends with back to the first. */
export class Conversations {
  readonly #nodes: StatementSync
  readonly #blobs: BlobStore

  constructor(database: DatabaseSync, blobs: BlobStore) {
    this.#nodes = database.prepare('SELECT seq, parent, message FROM node WHERE rollout = ? AND attempt = ?')
    this.#blobs = blobs
  }

  messages(rollout: string, attempt: number, leaf: number | null): string[] {
    if (leaf === null) return []
    const rows = decoded(`a message of ${rollout}`, () => this.#nodes.all(rollout, attempt)) as Link[]
    const bySeq = new Map(rows.map((row) => [row.seq, row]))
    const messages: string[] = []
    let seq: number | null = leaf
    while (seq !== null) {
      const row = bySeq.get(seq)
      if (!row) throw missingMessage(rollout, seq)
      messages.push(decoded(`message ${seq} of ${rollout}`, () => this.#blobs.text(row.message)))
      // Deleting the row ends the walk even if the links form a ring.
      bySeq.delete(seq)
      seq = row.parent
    }
    return messages.toReversed()
  }
}

// An alias, not an interface: only aliases can be asserted from the index signature that node:sqlite returns.
type Link = { seq: number; parent: number | null; message: string }

const roles: ReadonlySet<unknown> = new Set<Message['role']>(['system', 'developer', 'user', 'assistant', 'tool'])

/** A message from its JSON. It was valid when it was written; only what readers rely on is checked: an object that has a role. */
export function storedMessage(text: string): Message {
  const value: unknown = JSON.parse(text)
  if (!isMessage(value)) throw new Error('it is not a message')
  return value
}

function isMessage(value: unknown): value is Message {
  return isJsonObject(value) && roles.has(value['role'])
}
