import { constants, copyFileSync, mkdtempSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { pathToFileURL } from 'node:url'
import { MillraceError } from '../errors/index.ts'

/** A database with its log that is copied to be read. A larger one is for its owner to move. */
const maxCopiedBytes = 4 * 1024 ** 3

const sqliteReadOnly = 8
const sqliteCannotOpen = 14

/** What SQLite says of a database that it would have to write beside, and may not. */
export function isUnwritable(error: unknown): boolean {
  const { errcode } = error as { errcode?: number }
  const primary = (errcode ?? 0) & 0xff
  return primary === sqliteReadOnly || primary === sqliteCannotOpen
}

/**
 * Reads a database in a folder that cannot be written to: a disk mounted for reading, somebody else's run. SQLite keeps files
 * beside a database in WAL mode, even to read it, unless it is told that nobody changes it. That is true here: who can
 * write there has such files open, and then a reader needs none of its own.
 */
export function openUnwritable(path: string): DatabaseSync {
  const log = `${path}-wal`
  const logBytes = statSync(log, { throwIfNoEntry: false })?.size ?? 0
  if (logBytes === 0) return openUnchanging(path)
  // What a killed process wrote last is in the log alone, and a database that nobody changes is read without it.
  const bytes = statSync(path).size + logBytes
  if (bytes > maxCopiedBytes) throw tooLarge(path, bytes)
  const folder = mkdtempSync(join(tmpdir(), 'millrace-read-'))
  try {
    const copy = join(folder, 'journal.sqlite')
    copyFileSync(path, copy, constants.COPYFILE_FICLONE)
    copyFileSync(log, `${copy}-wal`, constants.COPYFILE_FICLONE)
    foldLog(copy)
    // The open file lives on without its name, until it is closed.
    return openUnchanging(copy)
  } finally {
    rmSync(folder, { recursive: true, force: true })
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
