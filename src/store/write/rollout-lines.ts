import { closeSync, fstatSync, fsyncSync, ftruncateSync, openSync, readSync, statSync } from 'node:fs'
import type { DatabaseSync, StatementSync } from 'node:sqlite'
import { MillraceError } from '../../errors/index.ts'
import type { BlobStore } from './blob-store.ts'
import { Conversations } from '../read/conversations.ts'
import { storedLine, type TaskNames } from '../read/rollout-line.ts'
import { endedRows, textOf } from '../read/stored-run.ts'
import { runFiles } from '../run/run-folder.ts'
import { writeFully } from '../run/atomic-write.ts'

/** Recorded instead of a length while the file does not match the database. */
const mustRebuild = -1

/**
 * `rollouts.jsonl`, kept in step with the database: each result's row says how long the file is with its line, and lines are
 * written once their transaction is committed. A file that lacks lines after a crash is rebuilt from the database, with a
 * line of kind `damaged` where a result cannot be read, so it is not synced per commit.
 */
export class RolloutLines {
  readonly #database: DatabaseSync
  readonly #blobs: BlobStore
  readonly #path: string
  readonly #setLength: StatementSync
  #descriptor: number | undefined
  /** Lines of the transaction under way, and the position of the last one's result. */
  #lines: string[] = []
  #position = -1
  #length = 0
  #writtenLength = 0
  #writtenPosition = -1

  private constructor(database: DatabaseSync, blobs: BlobStore, path: string) {
    this.#database = database
    this.#blobs = blobs
    this.#path = path
    this.#setLength = database.prepare(
      'UPDATE rollout SET lines_length = ? WHERE position = (SELECT max(position) FROM rollout)',
    )
  }

  static open(options: { database: DatabaseSync; blobs: BlobStore; path: string }): RolloutLines {
    const lines = new RolloutLines(options.database, options.blobs, options.path)
    try {
      lines.#heal()
    } catch (error) {
      lines.close()
      throw error
    }
    return lines
  }

  get length(): number {
    return this.#length
  }

  add(line: string, position: number): void {
    this.#lines.push(line)
    this.#position = position
    this.#length += Buffer.byteLength(line)
  }

  write(): void {
    if (this.#lines.length === 0) return
    const bytes = Buffer.from(this.#lines.join(''))
    this.#lines = []
    writeFully(this.#openDescriptor(), bytes)
    this.#writtenLength = this.#length
    this.#writtenPosition = this.#position
  }

  /** After a failure: cuts off what may be half a line, so that readers do not meet it. Best effort. */
  rolledBack(): void {
    this.#lines = []
    this.#length = this.#writtenLength
    try {
      if (this.#descriptor !== undefined) ftruncateSync(this.#descriptor, this.#length)
    } catch {
      // The file is too short then, so the next opening rebuilds it.
    }
  }

  /** Adds the lines that could not be written when their results were committed: by now there may be room. */
  catchUp(): void {
    this.#reopenIfDeleted()
    if (this.#writtenPosition >= this.#lastPosition()) return
    try {
      ftruncateSync(this.#openDescriptor(), this.#writtenLength)
      this.#writeMissing()
    } catch (error) {
      this.rolledBack()
      throw error
    }
    this.#length = this.#writtenLength
    if (linesLength(this.#database) !== this.#length) this.#setLength.run(this.#length)
  }

  /** Called at the end of a transaction that removes results: from here on the file is empty, and too short, until `rebuild`. */
  invalidate(): void {
    this.#setLength.run(mustRebuild)
    ftruncateSync(this.#openDescriptor())
    this.#writtenLength = 0
    this.#writtenPosition = -1
  }

  /** Rebuilds the file in place, so that it takes no more room. A rebuild that was interrupted is done again. */
  rebuild(): void {
    this.invalidate()
    this.#writeMissing()
    this.sync()
    this.#length = this.#writtenLength
    this.#setLength.run(this.#length)
  }

  sync(): void {
    if (this.#descriptor !== undefined) fsyncSync(this.#descriptor)
  }

  close(): void {
    const descriptor = this.#descriptor
    this.#descriptor = undefined
    if (descriptor !== undefined) closeSync(descriptor)
  }

  #heal(): void {
    const recorded = linesLength(this.#database)
    const descriptor = this.#openDescriptor()
    const { size } = fstatSync(descriptor)
    const isDue = recorded === mustRebuild
    if (!isDue && size > recorded) throw unknownResults(this.#path)
    if (isDue || size < recorded || !endsLine(descriptor, recorded)) {
      this.rebuild()
      return
    }
    this.#length = recorded
    this.#writtenLength = recorded
    this.#writtenPosition = this.#lastPosition()
  }

  #lastPosition(): number {
    const row = this.#database.prepare('SELECT max(position) AS position FROM rollout').get()
    return Number(row?.['position'] ?? -1)
  }

  /** Writing to a deleted file does not fail. */
  #reopenIfDeleted(): void {
    if (statSync(this.#path, { throwIfNoEntry: false })) return
    this.close()
    this.#writtenLength = 0
    this.#writtenPosition = -1
  }

  #openDescriptor(): number {
    this.#descriptor ??= openSync(this.#path, 'a+')
    return this.#descriptor
  }

  #writeMissing(): void {
    const descriptor = this.#openDescriptor()
    const conversations = new Conversations(this.#database, this.#blobs)
    const taskOf = this.#database.prepare('SELECT id FROM task WHERE number = ?')
    const tasks: TaskNames = { task: (index) => taskOf.get(index) as { id: string } | undefined }
    for (const row of endedRows(this.#database, this.#writtenPosition)) {
      const bytes = Buffer.from(storedLine(textOf(row, this.#blobs, conversations), { tasks }))
      writeFully(descriptor, bytes)
      this.#writtenLength += bytes.byteLength
      this.#writtenPosition = row.position
    }
  }
}

/** How much of `rollouts.jsonl` the database vouches for; negative while it must be rebuilt. */
export function linesLength(database: DatabaseSync): number {
  const row = database.prepare('SELECT lines_length FROM rollout ORDER BY position DESC LIMIT 1').get()
  return Number(row?.['lines_length'] ?? 0)
}

/** A file system that lost power may keep the length and lose the content; a missing newline at the end gives it away. */
function endsLine(descriptor: number, length: number): boolean {
  if (length === 0) return true
  const last = new Uint8Array(1)
  return readSync(descriptor, last, 0, 1, length - 1) === 1 && last[0] === 0x0a
}

/** Happens if the database was replaced by an older copy, or was copied before the file while somebody worked on the run. */
function unknownResults(path: string): MillraceError {
  const { database, lines } = runFiles
  return new MillraceError(
    'store_failed',
    `${path} holds more results than ${database} knows of; restore the ${database} that belongs to it, or remove ${lines} to continue with the results in ${database}`,
  )
}
