import { accessSync, constants } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { pathToFileURL } from 'node:url'
import { MillraceError } from '../../errors/index.ts'
import { sqliteCode, sqliteCodes } from '../run/failures.ts'
import { readRunFile, lostJournalReason } from '../run/run-file.ts'
import { fileSize, noDatabase, noRun, runFiles } from '../run/run-folder.ts'
import { createSchema, isEmpty, requireVersion } from './schema.ts'

/** How long to wait for a foreign process that holds the database, such as somebody's sqlite3 shell. */
const busyTimeoutMs = 20_000

/**
 * FULL holds against power loss, not only against a crash. The log is copied about every 16 MB, which keeps that pause at a
 * few milliseconds. Pages of 8 KB took a fifth less CPU than 4 KB for our mix of rows.
 */
const writerSettings = `
  PRAGMA page_size = 8192;
  PRAGMA journal_mode = WAL;
  PRAGMA synchronous = FULL;
  PRAGMA wal_autocheckpoint = 2000;
  PRAGMA journal_size_limit = 67108864;
  PRAGMA cache_size = -16384;
  PRAGMA temp_store = MEMORY;
`

export function openForWriting(folder: string): DatabaseSync {
  const database = new DatabaseSync(join(folder, runFiles.database), { timeout: busyTimeoutMs })
  try {
    database.exec(writerSettings)
    createSchema(database, folder)
    return database
  } catch (error) {
    database.close()
    throw error
  }
}

/** A connection that only reads. In WAL mode it neither waits for the writer nor holds it up. */
export function openForReading(folder: string): DatabaseSync {
  const path = join(folder, runFiles.database)
  if (fileSize(path) === 0) return openUnmade(folder)
  try {
    return checked(new DatabaseSync(path, { readOnly: true, timeout: busyTimeoutMs }), folder)
  } catch (error) {
    if (!isUnwritable(error) || canWriteIn(folder)) throw error
    return checked(openUnwritable(folder), folder)
  }
}

/** The journal of a run that has none yet, since it is still starting or was killed while it was: one that holds nothing. */
function openUnmade(folder: string): DatabaseSync {
  const run = readRunFile(folder)
  if (!run) throw noRun(folder)
  if (lostJournalReason(folder, run) !== undefined) throw noDatabase(folder)
  const database = new DatabaseSync(':memory:')
  createSchema(database, folder)
  return database
}

function checked(database: DatabaseSync, folder: string): DatabaseSync {
  try {
    if (!isEmpty(database)) {
      requireVersion(database, folder)
      return database
    }
  } catch (error) {
    database.close()
    throw error
  }
  database.close()
  return openUnmade(folder)
}

/**
 * SQLite keeps files beside a database in WAL mode, even to read it, unless it is told that nobody changes the database. That
 * is true here: a process that can write there has such files open, and then a reader needs none of its own.
 */
function openUnwritable(folder: string): DatabaseSync {
  const path = join(folder, runFiles.database)
  // The last writes of a killed process are in the log alone, and SQLite ignores the log of a database that nobody changes.
  if (fileSize(`${path}-wal`) > 0) throw unreadLog(folder)
  const url = pathToFileURL(path)
  url.searchParams.set('immutable', '1')
  return new DatabaseSync(url, { readOnly: true })
}

function unreadLog(folder: string): MillraceError {
  const { database } = runFiles
  return new MillraceError(
    'store_failed',
    `the run in ${folder} was not closed: its last records are in ${database}-wal, which SQLite cannot read in a read-only folder; copy the folder to a writable place, and read the copy`,
    { data: { folder } },
  )
}

/** Whether SQLite failed because it must write beside the database, and may not. */
function isUnwritable(error: unknown): boolean {
  const code = sqliteCode(error)
  return code === sqliteCodes.readOnly || code === sqliteCodes.cannotOpen
}

/** Where the folder can be written to, SQLite's error has another cause: no descriptor is left, say. */
function canWriteIn(folder: string): boolean {
  try {
    accessSync(folder, constants.W_OK)
    return true
  } catch {
    return false
  }
}

/** No statement stays open between pages, so that a slow reader does not keep the writer from recycling its log. */
const pageRows = 256

/** All rows, page by page. `pageAfter` reads up to `count` rows after the last one, or the first rows. */
export function* pages<Row>(
  pageAfter: (last: Row | undefined, count: number) => readonly Row[],
  count = pageRows,
): Generator<Row, void, void> {
  let last: Row | undefined
  for (;;) {
    const rows = pageAfter(last, count)
    yield* rows
    if (rows.length < count) return
    last = rows.at(-1)
  }
}
