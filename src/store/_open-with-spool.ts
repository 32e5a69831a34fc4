import { existsSync } from 'node:fs'
import { join } from 'node:path'
import type { DatabaseSync } from 'node:sqlite'
import { allInline, BlobStore } from './_blob-store.ts'
import { JournalWriter } from './_journal-writer.ts'
import { canWriteIn, openForReading, versionChecked } from './_open-database.ts'
import { copyRecord } from './_open-unwritable.ts'
import { RunLock } from './_run-lock.ts'
import { runFiles } from './run-folder.ts'

/**
 * What a gateway that was killed wrote down last is brought into its record by whoever opens that next, to read it, too. Where
 * nothing can be written, that is done in a copy, so that nobody takes a part of what was said for all of it.
 */
export function openWithSpool(folder: string): DatabaseSync {
  if (!isLeft(folder, runFiles.spool) || !isLeft(folder, runFiles.database) || mayBeInUse(folder)) {
    return openForReading(folder)
  }
  if (canWriteIn(folder)) {
    takeIn(folder)
    return openForReading(folder)
  }
  using copy = copyRecord(folder)
  // The blobs of the run are read where they are, and the copy is gone before anybody could read one of its own.
  takeIn(copy.folder, new BlobStore(join(folder, runFiles.blobs), allInline))
  return versionChecked(copy.open(), folder)
}

function takeIn(folder: string, blobs?: BlobStore): void {
  try {
    using _lock = RunLock.acquire(folder, 'take-in')
    JournalWriter.open(folder, blobs).close()
  } catch {
    // Somebody else was quicker, or it cannot be read. What is in the record can be, all the same.
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
