import { chmodSync, constants, copyFileSync, existsSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { pathToFileURL } from 'node:url'
import { MillraceError } from '../errors/index.ts'
import { fileSize } from './_file-size.ts'
import { sqliteCode, sqliteCodes } from './_sqlite-code.ts'
import { runFiles } from './run-folder.ts'

/** The largest database, with its log, that is copied to be read. The owner has to move a larger one. */
const maxCopiedBytes = 4 * 1024 ** 3

/** Whether SQLite failed because it must write beside the database, and may not. */
export function isUnwritable(error: unknown): boolean {
  const code = sqliteCode(error)
  return code === sqliteCodes.readOnly || code === sqliteCodes.cannotOpen
}

/**
 * Reads a database in a folder that cannot be written to: a disk mounted for reading, somebody else's run. SQLite keeps files
 * beside a database in WAL mode, even to read it, unless it is told that nobody changes the database. That is true here: a
 * process that can write there has such files open, and then a reader needs none of its own.
 */
export function openUnwritable(folder: string): DatabaseSync {
  const path = join(folder, runFiles.database)
  if (fileSize(`${path}-wal`) === 0) return openUnchanging(path)
  // The last writes of a killed process are in the log alone, and SQLite ignores the log of a database that nobody changes.
  using copy = copyRecord(folder)
  return copy.open()
}

interface RecordCopy extends Disposable {
  readonly folder: string
  /** Afterwards the copy may be disposed of: the open file lives on without its name, until it is closed. */
  open(): DatabaseSync
}

/** A copy of a record in the temporary folder, with its log and spool, and without blobs. */
export function copyRecord(folder: string): RecordCopy {
  const parts = [runFiles.database, `${runFiles.database}-wal`, runFiles.spool]
  const files = parts.filter((name) => existsSync(join(folder, name)))
  const bytes = files.reduce((sum, name) => sum + fileSize(join(folder, name)), 0)
  if (bytes > maxCopiedBytes) throw tooLarge(join(folder, runFiles.database), bytes)
  const copy = mkdtempSync(join(tmpdir(), 'millrace-read-'))
  const remove = (): void => rmSync(copy, { recursive: true, force: true })
  try {
    for (const name of files) {
      copyFileSync(join(folder, name), join(copy, name), constants.COPYFILE_FICLONE)
      // A file that is read-only keeps that mode in the copy, and the copy is written to.
      chmodSync(join(copy, name), 0o600)
    }
  } catch (error) {
    remove()
    throw error
  }
  return {
    folder: copy,
    open: () => {
      foldLog(join(copy, runFiles.database))
      return openUnchanging(join(copy, runFiles.database))
    },
    [Symbol.dispose]: remove,
  }
}

function openUnchanging(path: string): DatabaseSync {
  const url = pathToFileURL(path)
  url.searchParams.set('immutable', '1')
  return new DatabaseSync(url, { readOnly: true })
}

function foldLog(path: string): void {
  using database = new DatabaseSync(path)
  database.exec('PRAGMA journal_mode = DELETE')
}

function tooLarge(path: string, bytes: number): MillraceError {
  const size = `${(bytes / 1024 ** 3).toFixed(1)} GiB`
  return new MillraceError(
    'store_failed',
    `${path} was not closed and lies where nothing can be written, so that it must be copied to be read, and at ${size} it is too large for that; copy its folder to another disk`,
  )
}
