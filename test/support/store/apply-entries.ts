import { JournalWriter } from '../../../src/store/write/journal-writer.ts'
import type { JournalEntry } from '../../../src/store/index.ts'

/** Writes the entries on this thread, one transaction per call, and closes again. */
export function applyAll(folder: string, entries: readonly JournalEntry[]): void {
  const writer = JournalWriter.open(folder)
  try {
    writer.begin()
    for (const entry of entries) writer.apply(entry)
    writer.commit()
  } finally {
    writer.close()
  }
}
