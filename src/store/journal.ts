import type { JournalEntry } from './journal-entry.ts'

/** The write side of a run, as any thread sees it. */
export interface Journal {
  /** Queues the entry, in order. Never blocks and never fails: a broken store shows in `durable`. */
  append(entry: JournalEntry): void
  /** The same for several that must become durable together or not at all. */
  appendAll(entries: readonly JournalEntry[]): void
  /** What waits for the disk, as a share of what may: at 1 nothing new should be started. */
  readonly pressure: number
  /** Resolves when everything appended so far is on disk; undefined when it already is. Rejects once the store failed. */
  durable(): Promise<void> | undefined
  /** The same for one who is not in a hurry: shares the commit of somebody who is, or waits a few milliseconds for its own. */
  durableSoon(): Promise<void> | undefined
  /** Resolves when no end of this process can take back what was appended so far. Neither the disk nor a reader need have it yet. */
  written(): Promise<void> | undefined
}
