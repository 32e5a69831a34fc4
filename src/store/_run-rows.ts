import type { Json, Outcome } from '../schema/index.ts'
import type { BlobStore } from './_blob-store.ts'
import type { BareRecord, StoredAttempt, StoredEvent, StoredRollout, UnacceptedAttempt } from './stored-run.ts'

// Aliases, not interfaces: only those can be asserted from the index signature that node:sqlite returns.
export type RolloutRow = {
  position: number
  id: string
  task: number
  sample: number
  attempt: number
  outcome: Outcome
  reward: number | null
  leaf: number | null
  ended_at: number
  record: string
}

export type UnfinishedRow = {
  rollout: string
  attempt: number
  task: number
  sample: number
  discarded: number
  hasRecord: number
}

export type UnacceptedRow = {
  rollout: string
  attempt: number
  isOpen: number
  record: string | null
}

export type AttemptRow = {
  rollout: string
  attempt: number
  parent: string | null
  task: number
  sample: number
  started_at: number
  ended_at: number | null
  outcome: Outcome | null
  leaf: number | null
  discarded: number
  record: string | null
}

export type EventRow = {
  position: number
  rollout: string | null
  attempt: number
  name: string
  at: number
  data: string
}

export function rolloutOf(row: RolloutRow, blobs: BlobStore): StoredRollout {
  const { id, attempt, task, sample, outcome, reward } = row
  const record = recordOf(row.record, blobs)
  return { rollout: id, attempt, task, sample, outcome, reward, endedAt: row.ended_at, record }
}

export function attemptOf(row: AttemptRow, blobs: BlobStore): StoredAttempt {
  const { rollout, attempt, parent, task, sample, outcome, record } = row
  const discarded = row.discarded === 1
  const common = { rollout, attempt, parent, task, sample, startedAt: row.started_at, discarded }
  if (outcome === null || record === null) return common
  const end = { at: row.ended_at ?? 0, outcome, record: recordOf(record, blobs), leaf: row.leaf }
  return { ...common, end }
}

export function unacceptedOf(row: UnacceptedRow, blobs: BlobStore): UnacceptedAttempt {
  const { rollout, attempt, record } = row
  const common = { rollout, attempt, isOpen: row.isOpen === 1 }
  return record === null ? common : { ...common, record: recordOf(record, blobs) }
}

export function eventOf(row: EventRow, blobs: BlobStore): StoredEvent {
  const { rollout, attempt, name, at } = row
  return { rollout, attempt, name, at, data: JSON.parse(blobs.text(row.data)) as Json }
}

/** What a `record` column holds, itself or by reference. */
export function recordOf(stored: string, blobs: BlobStore): BareRecord {
  return JSON.parse(blobs.text(stored)) as BareRecord
}
