import type { DatabaseSync, StatementSync } from 'node:sqlite'
import type { Json } from '../schema/index.ts'
import type { BlobStore } from './_blob-store.ts'
import { damagedTaskRow, decoded, isCorrupt } from './damage.ts'
import type { StoredTask } from './stored-run.ts'

// An alias, not an interface: only aliases can be asserted from the index signature that node:sqlite returns.
export type TaskFacts = { index: number; id: string; digest: string }

/** The rows of tasks. Each is stored once, by its digest, however many tasks have it. */
export class TaskRows {
  readonly #row: StatementSync
  readonly #blobs: BlobStore

  constructor(database: DatabaseSync, blobs: BlobStore) {
    this.#row = database.prepare('SELECT row FROM task_row WHERE digest = ?')
    this.#blobs = blobs
  }

  taskOf({ index, id, digest }: TaskFacts): StoredTask {
    const value = (): Json | undefined => this.#read({ index, digest })?.value
    return {
      index,
      id,
      digest,
      get row(): Json | undefined {
        return value()
      },
    }
  }

  /** The JSON text of a row, checked to be JSON. */
  textOf(task: Pick<TaskFacts, 'index' | 'digest'>): string | undefined {
    return this.#read(task)?.text
  }

  #read({ index, digest }: Pick<TaskFacts, 'index' | 'digest'>): { text: string; value: Json } | undefined {
    const stored = this.#stored(index, digest)
    if (stored === undefined) return undefined
    return decoded(
      () => {
        const text = this.#blobs.text(stored)
        return { text, value: JSON.parse(text) as Json }
      },
      (cause) => damagedTaskRow(index, cause),
    )
  }

  #stored(index: number, digest: string): unknown {
    try {
      return this.#row.get(digest)?.['row']
    } catch (error) {
      throw isCorrupt(error) ? damagedTaskRow(index, error) : error
    }
  }
}
