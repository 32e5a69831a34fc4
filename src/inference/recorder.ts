import type { MessageNode } from '../schema/index.ts'

/** Keeps what a session says, in order. Declared here and implemented by the store, which stands above this layer. */
export interface Recorder {
  /** Queues the node; `json` is its message, already written. */
  node(node: MessageNode, json: string): void
  /** Resolves when every node so far is on disk; undefined if all are already. */
  synced(): Promise<void> | undefined
}
