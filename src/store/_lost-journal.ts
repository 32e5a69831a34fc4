import { join } from 'node:path'
import { fileSize } from './_file-size.ts'
import type { RunFile } from './run-file.ts'
import { runFiles } from './run-folder.ts'

/**
 * What shows that a run without a journal has lost it, if anything does. A run that is starting, or was killed while it was,
 * has none yet: it has no results, and no sitting of it has ended.
 */
export function signOfLostJournal(folder: string, run: RunFile | undefined): string | undefined {
  const kept = [runFiles.lines, runFiles.spool].find((name) => fileSize(join(folder, name)) > 0)
  if (kept !== undefined) return `has records in ${kept}`
  return run?.sittings.some(({ endedAt }) => endedAt !== undefined) ? 'was worked on' : undefined
}
