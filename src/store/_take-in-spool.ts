import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { JournalWriter } from './_journal-writer.ts'
import { RunLock } from './_run-lock.ts'
import { runFiles } from './run-folder.ts'

/**
 * What a gateway that was killed wrote down last is brought into its record by whoever opens that next, to read it, too. Where
 * nothing can be written it has to wait: then that is not shown which was said in the last moment.
 */
export function takeInSpool(folder: string): void {
  if (!existsSync(join(folder, runFiles.spool))) return
  try {
    // Nobody who only reads waits for one who works on it.
    if (RunLock.isHeld(folder)) return
    using _lock = RunLock.acquire(folder)
    JournalWriter.open(folder).close()
  } catch {
    // See above; or somebody else was quicker. What is in the record can be read all the same.
  }
}
