import type { DatabaseSync, StatementSync } from 'node:sqlite'
import type { BlobStore } from './_blob-store.ts'

interface Link {
  seq: number
  parent: number | null
  message: string
}

/** Reads what was said in an attempt, from the node it ends with back to the first. */
export class Conversations {
  readonly #links: StatementSync
  readonly #blobs: BlobStore

  constructor(database: DatabaseSync, blobs: BlobStore) {
    this.#links = database.prepare('SELECT seq, parent, message FROM node WHERE rollout = ? AND attempt = ?')
    this.#blobs = blobs
  }

  /** The JSON of each message, in order. A node that is missing ends the walk; `integrity` reports it. */
  messages(rollout: string, attempt: number, leaf: number | null): string[] {
    if (leaf === null) return []
    const links = new Map<number, Link>()
    for (const row of this.#links.all(rollout, attempt)) {
      const { seq, parent, message } = row as { seq: number; parent: number | null; message: string }
      links.set(seq, { seq, parent, message })
    }
    const texts: string[] = []
    let link = links.get(leaf)
    while (link) {
      texts.push(this.#blobs.text(link.message))
      // Taking it out ends the walk even if the links were to form a ring.
      links.delete(link.seq)
      link = link.parent === null ? undefined : links.get(link.parent)
    }
    return texts.toReversed()
  }
}
