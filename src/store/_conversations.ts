import type { DatabaseSync, StatementSync } from 'node:sqlite'
import type { BlobStore } from './_blob-store.ts'
import { damagedMessages, decoded, messageRows, missingMessage } from './damage.ts'

/** A message with its number and its parent's. As arrays, which take a third less time than objects. */
type Link = [seq: number, parent: number | null, message: string]

/** Reads the conversation of an attempt, from the node it ends with back to the first. */
export class Conversations {
  readonly #links: StatementSync
  readonly #blobs: BlobStore

  constructor(database: DatabaseSync, blobs: BlobStore) {
    this.#links = database.prepare('SELECT seq, parent, message FROM node WHERE rollout = ? AND attempt = ?')
    this.#links.setReturnArrays(true)
    this.#blobs = blobs
  }

  /** The JSON of each message, in order. */
  messages(rollout: string, attempt: number, leaf: number | null): string[] {
    if (leaf === null) return []
    const links = messageRows(rollout, () => this.#links.all(rollout, attempt)) as unknown as Link[]
    return (isOneLine(links, leaf) ? links : lineTo(rollout, leaf, links)).map(([seq, , message]) =>
      decoded(
        () => this.#blobs.text(message),
        (cause) => damagedMessages(rollout, seq, cause),
      ),
    )
  }
}

/** Whether the links are the conversation as they stand, as those of a rollout are. */
function isOneLine(links: readonly Link[], leaf: number): boolean {
  return (
    links.length === leaf + 1 && links.every(([seq, parent], index) => seq === index && (parent ?? -1) === index - 1)
  )
}

function lineTo(rollout: string, leaf: number, links: readonly Link[]): Link[] {
  const bySeq = new Map(links.map((link) => [link[0], link]))
  const line: Link[] = []
  let seq: number | null = leaf
  while (seq !== null) {
    const link = bySeq.get(seq)
    if (!link) throw missingMessage(rollout, seq)
    line.push(link)
    // Deleting the link ends the walk even if the links form a ring.
    bySeq.delete(seq)
    seq = link[1]
  }
  return line.toReversed()
}
