import { existsSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { MillraceError } from '../../errors/index.ts'
import { folderFailure, sqliteCode, sqliteCodes } from './failures.ts'
import { runFiles } from './run-folder.ts'

/** How long to wait for the lock: longer than somebody needs who only looks whether it is held. */
const patienceMs = 200

/**
 * Keeps a run to one process: an exclusive transaction on a database of its own, which the operating system ends with the
 * process, so there is no stale lock. The file must only be opened through SQLite: closing any other descriptor of it would
 * drop the lock (POSIX fcntl locks belong to the process).
 */
export class RunLock implements Disposable {
  readonly #database: DatabaseSync
  readonly #folder: string
  /** The number of the lock's file: another run may lie at the path by the time that this one is let go. */
  readonly #inode: number | undefined

  private constructor(database: DatabaseSync, folder: string) {
    this.#database = database
    this.#folder = folder
    this.#inode = inodeOf(folder)
  }

  static acquire(folder: string): RunLock {
    let database
    try {
      database = openLock(folder, false)
      // In memory, because the default leaves an empty journal file beside the lock.
      database.exec('PRAGMA journal_mode = MEMORY; BEGIN EXCLUSIVE')
    } catch (error) {
      database?.close()
      throw isBusy(error) ? inUse(folder) : folderFailure(error, folder)
    }
    const owner: Owner = { pid: process.pid, since: new Date().toISOString() }
    try {
      writeFileSync(join(folder, runFiles.lockOwner), JSON.stringify(owner))
    } catch {
      // The owner file only makes a message better; a full disk is reported by the first write that matters.
    }
    return new RunLock(database, folder)
  }

  static isHeld(folder: string): boolean {
    if (!existsSync(join(folder, runFiles.lock))) return false
    try {
      using database = openLock(folder, true)
      database.prepare('SELECT 1 FROM sqlite_schema').all()
      return false
    } catch (error) {
      if (isBusy(error)) return true
      throw folderFailure(error, folder)
    }
  }

  static requireFree(folder: string): void {
    if (RunLock.isHeld(folder)) throw inUse(folder)
  }

  [Symbol.dispose](): void {
    if (!this.#database.isOpen) return
    try {
      if (inodeOf(this.#folder) === this.#inode) rmSync(join(this.#folder, runFiles.lockOwner), { force: true })
    } catch {
      // The file does not matter here either.
    }
    this.#database.close()
  }
}

interface Owner {
  readonly pid: number
  readonly since: string
}

function inodeOf(folder: string): number | undefined {
  return statSync(join(folder, runFiles.lock), { throwIfNoEntry: false })?.ino
}

function openLock(folder: string, readOnly: boolean): DatabaseSync {
  return new DatabaseSync(join(folder, runFiles.lock), { timeout: readOnly ? 0 : patienceMs, readOnly })
}

function isBusy(error: unknown): boolean {
  return sqliteCode(error) === sqliteCodes.busy
}

function inUse(folder: string): MillraceError {
  const owner = readOwner(folder)
  const who = owner ? `process ${owner.pid} (since ${owner.since})` : 'another process'
  return new MillraceError(
    'run_in_use',
    `the run in ${folder} is in use by ${who}; wait for it or stop it, or start another run with --run <name> (run.name)`,
    { data: { folder, pid: owner?.pid, since: owner?.since } },
  )
}

function readOwner(folder: string): Owner | undefined {
  try {
    return JSON.parse(readFileSync(join(folder, runFiles.lockOwner), 'utf8')) as Owner
  } catch {
    return undefined
  }
}
