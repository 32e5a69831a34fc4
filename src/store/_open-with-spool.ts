import { existsSync } from 'node:fs'
import { join } from 'node:path'
import type { DatabaseSync } from 'node:sqlite'
import { MillraceError } from '../errors/index.ts'
import { allInline, BlobStore } from './_blob-store.ts'
import { JournalWriter } from './_journal-writer.ts'
import { canWriteIn, openForReading, versionChecked } from './_open-database.ts'
import { copyRecord } from './_open-unwritable.ts'
import { RunLock } from './_run-lock.ts'
import { storeFailure } from './_store-failure.ts'
import { runFiles } from './run-folder.ts'

export interface OpenedWithSpool {
  readonly database: DatabaseSync
  /** Why the frames in the spool are not in the database, if they should be. */
  readonly spoolProblem: MillraceError | undefined
}

/**
 * Opens a run to read it, and first brings in the spool that a killed process left, so that nobody takes a part of what was said
 * for all of it. Where nothing can be written, that is done in a copy.
 */
export function openWithSpool(folder: string): OpenedWithSpool {
  if (!isLeft(folder, runFiles.spool) || !isLeft(folder, runFiles.database) || mayBeInUse(folder)) {
    return { database: openForReading(folder), spoolProblem: undefined }
  }
  if (canWriteIn(folder)) {
    const spoolProblem = takeIn(folder)
    return { database: openForReading(folder), spoolProblem }
  }
  using copy = copyRecord(folder)
  // The run's blobs are read where they are. The copy gets none of its own, as it is gone before anybody could read them.
  const problem = takeIn(copy.folder, new BlobStore(join(folder, runFiles.blobs), allInline))
  const spoolProblem =
    problem && new MillraceError(problem.code, problem.rawMessage.replaceAll(copy.folder, folder), { cause: problem })
  return { database: versionChecked(copy.open(), folder), spoolProblem }
}

/** Brings in the spool; returns why that failed, if it did. The rest of the record can be read all the same. */
function takeIn(folder: string, blobs?: BlobStore): MillraceError | undefined {
  try {
    using _lock = RunLock.acquire(folder, 'take-in')
    JournalWriter.open(folder, blobs).close()
    return undefined
  } catch (error) {
    const problem = storeFailure(error, folder)
    // Another process has brought it in meanwhile.
    return problem.code === 'run_in_use' ? undefined : problem
  }
}

/** If the lock cannot be read, nobody knows whether the run is in use; that must not keep readers out. */
function mayBeInUse(folder: string): boolean {
  try {
    return RunLock.isHeld(folder)
  } catch {
    return true
  }
}

function isLeft(folder: string, name: string): boolean {
  return existsSync(join(folder, name))
}
