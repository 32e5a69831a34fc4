import type { JournalEntry, NewRun } from '../../../src/store/index.ts'
import { newRunFile, writeRunFile, type RunFile } from '../../../src/store/run/run-file.ts'
import { createRunFolder } from '../../../src/store/run/run-folder.ts'
import { applyAll } from './apply-entries.ts'

/**
 * A run as a launch leaves it that was closed, for tests of those who read runs. Written on this thread: starting the thread
 * of a `RunStore` would take ten times as long as all the rest.
 */
export function writeStoredRun(
  folder: string,
  run: NewRun,
  entries: readonly JournalEntry[],
  { state = 'unfinished', end }: { readonly state?: RunFile['state']; readonly end?: string } = {},
): void {
  createRunFolder(folder)
  const at = new Date().toISOString()
  const launch = { startedAt: at, endedAt: at, ...(end !== undefined && { end }) }
  writeRunFile(folder, { ...newRunFile(run), state, launches: [launch] })
  applyAll(folder, entries)
}
