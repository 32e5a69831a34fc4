/** What the writer of a run has done since the run was opened. */
export interface StoreStatus {
  /** Transactions, the entries in them, and how long they took in all, syncing to disk included. */
  readonly commits: number
  readonly entries: number
  readonly commitMs: number
  /** The slowest transaction of the last second or two; 0 if there was none. */
  readonly slowestCommitMs: number
}
