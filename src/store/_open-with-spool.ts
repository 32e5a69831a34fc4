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
  /** Why what is in the spool is not in the database, if it should be. */
  readonly spoolProblem: MillraceError | undefined
}

/**
 * What a gateway that was killed wrote down last is brought into its record by whoever opens that next, to read it, too. Where
 * nothing can be written, that is done in a copy, so that nobody takes a part of what was said for all of it.
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
  // The blobs of the run are read where they are, and the copy is gone before anybody could read one of its own.
  const problem = takeIn(copy.folder, new BlobStore(join(folder, runFiles.blobs), allInline))
  const spoolProblem =
    problem && new MillraceError(problem.code, problem.rawMessage.replaceAll(copy.folder, folder), { cause: problem })
  return { database: versionChecked(copy.open(), folder), spoolProblem }
}

/** Returns why it could not be done. What is in the record can be read all the same. */
function takeIn(folder: string, blobs?: BlobStore): MillraceError | undefined {
  try {
    using _lock = RunLock.acquire(folder, 'take-in')
    JournalWriter.open(folder, blobs).close()
    return undefined
  } catch (error) {
    const problem = storeFailure(error, folder)
    // Somebody else was quicker.
    return problem.code === 'run_in_use' ? undefined : problem
  }
}

/** Of a lock that cannot be read nobody knows whether somebody has it; who only reads is not kept from that. */
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
