import type { JournalEntry } from './journal-entry.ts'

/** The write side of a run, as any thread sees it. */
export interface Journal {
  /** Queues the entry, in order. Never blocks and never fails: a broken store shows in `durable`. */
  append(entry: JournalEntry): void
  /** Queues several entries that must become durable together or not at all. */
  appendAll(entries: readonly JournalEntry[]): void
  /** What waits for the disk, as a share of what may wait: at 1 nothing new should be started. */
  readonly pressure: number
  /**
   * Resolves when everything appended so far is on disk and readers of the run see it; undefined when that is so already.
   * Rejects once the store failed.
   */
  durable(): Promise<void> | undefined
  /** Like `durable`, but readers need not have it yet: they see it a little later, or when the run is opened again. */
  synced(): Promise<void> | undefined
  /** Like `synced`, without hurry: shares the sync of a caller that is in a hurry, or waits a few milliseconds for its own. */
  syncedSoon(): Promise<void> | undefined
  /** Resolves when an end of this process cannot lose what was appended so far. Disk and readers need not have it yet. */
  written(): Promise<void> | undefined
}
