import { deserialize, serialize } from 'node:v8'
import { type Batch, decodeBatch, encodeBatch, type QueuedEntry } from './_batch-codec.ts'
import type { JournalEntry } from './journal-entry.ts'

/** Entries as the bytes of one frame of the spool. */
export function encodeFrame(entries: readonly QueuedEntry[]): Uint8Array {
  return serialize(encodeBatch(entries))
}

export function decodeFrame(bytes: Uint8Array): JournalEntry[] {
  // A frame never holds another frame.
  return decodeBatch(deserialize(bytes) as Batch) as JournalEntry[]
}
