import { accessSync, constants } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { fileSize } from './_file-size.ts'
import { signOfLostJournal } from './_lost-journal.ts'
import { isUnwritable, openUnwritable } from './_open-unwritable.ts'
import { migrate, requireVersion } from './_schema.ts'
import { readRunFile } from './run-file.ts'
import { noDatabase, noRun, runFiles } from './run-folder.ts'

/** How long to wait for a foreign process that holds the database, such as somebody's sqlite3 shell. */
const busyTimeoutMs = 20_000

/**
 * FULL syncs the log at every commit, which holds against power loss as far as the drive does, not only against a crash. The log
 * is copied into the database about every 16 MB, which keeps that pause at a few milliseconds, and its file is cut back to 64 MB
 * after a burst. Pages of 8 KB took a fifth less CPU than 4 KB for our mix of rows.
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

/** The one connection that writes, with its schema up to date. */
export function openForWriting(folder: string): DatabaseSync {
  const database = new DatabaseSync(join(folder, runFiles.database), { timeout: busyTimeoutMs })
  try {
    database.exec(writerSettings)
    migrate(database, folder)
    return database
  } catch (error) {
    database.close()
    throw error
  }
}

/**
 * A connection that only reads. In WAL mode it neither waits for the writer nor holds it up. Also works in a folder that cannot
 * be written to.
 */
export function openForReading(folder: string): DatabaseSync {
  const path = join(folder, runFiles.database)
  if (fileSize(path) === 0) return openUnmade(folder)
  try {
    return versionChecked(new DatabaseSync(path, { readOnly: true, timeout: busyTimeoutMs }), folder)
  } catch (error) {
    if (!isUnwritable(error) || canWriteIn(folder)) throw error
    return versionChecked(openUnwritable(folder), folder)
  }
}

/** The journal of a run that has none yet, since it is still starting or was killed while it was: one that holds nothing. */
function openUnmade(folder: string): DatabaseSync {
  const run = readRunFile(folder)
  if (!run) throw noRun(folder)
  if (signOfLostJournal(folder, run) !== undefined) throw noDatabase(folder)
  const database = new DatabaseSync(':memory:')
  migrate(database, folder)
  return database
}

/** Where the folder can be written to, SQLite's error has another cause: no descriptor is left, say. */
export function canWriteIn(folder: string): boolean {
  try {
    accessSync(folder, constants.W_OK)
    return true
  } catch {
    return false
  }
}

export function versionChecked(database: DatabaseSync, folder: string): DatabaseSync {
  try {
    requireVersion(database, folder)
    return database
  } catch (error) {
    database.close()
    throw error
  }
}
