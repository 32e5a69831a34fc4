import { MillraceError } from '../errors/index.ts'
import type { Json, Outcome } from '../schema/index.ts'
import type { BlobStore } from './_blob-store.ts'
import { damagedEvent, damagedRecord, decoded } from './damage.ts'
import type { Conversations } from './_conversations.ts'
import { storedRecord } from './_stored-record.ts'
import type {
  BareRecord,
  RolloutFacts,
  StoredAttempt,
  StoredEvent,
  StoredRollout,
  StoredText,
  UnacceptedAttempt,
  UnfinishedRollout,
} from './stored-run.ts'

// Aliases, not interfaces: only aliases can be asserted from the index signature that node:sqlite returns.
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

export type FactRow = Omit<RolloutRow, 'record'>

/** The row of a result. Instead of its record there may be the reason why that cannot be read. */
export type EndedRow = FactRow & { record: string | MillraceError }

export type UnfinishedRow = {
  rollout: string
  attempt: number
  task: number
  sample: number
  outcome: Outcome | null
  leaf: number | null
  discarded: number
  hasRecord: number
}

export type HeldRow = Pick<RolloutRow, 'task' | 'sample' | 'attempt' | 'outcome' | 'leaf' | 'record'> & {
  rollout: string
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

export function rolloutOf(row: EndedRow, blobs: BlobStore): StoredRollout {
  return {
    ...factsOf(row),
    get record(): BareRecord {
      return recordOf(row.id, row.record, blobs)
    },
  }
}

/** A result with its messages, as text. */
export function textOf(row: EndedRow, blobs: BlobStore, conversations: Conversations): StoredText {
  return {
    ...factsOf(row),
    get text(): StoredText['text'] {
      const { id, attempt, leaf } = row
      return { record: recordText(id, row.record, blobs), messages: conversations.messages(id, attempt, leaf) }
    },
  }
}

function factsOf({ id, attempt, task, sample, outcome, reward, ended_at: endedAt }: EndedRow): RolloutFacts {
  return { rollout: id, attempt, task, sample, outcome, reward, endedAt }
}

export function attemptOf(row: AttemptRow, blobs: BlobStore): StoredAttempt {
  const { rollout, attempt, parent, task, sample, outcome, record } = row
  const discarded = row.discarded === 1
  const common = { rollout, attempt, parent, task, sample, startedAt: row.started_at, discarded }
  if (outcome === null || record === null) return common
  const end = {
    at: row.ended_at ?? 0,
    outcome,
    leaf: row.leaf,
    get record(): BareRecord {
      return recordOf(rollout, record, blobs)
    },
  }
  return { ...common, end }
}

/** An unfinished rollout that waits for its group. */
export function heldOf(row: HeldRow, blobs: BlobStore): UnfinishedRollout {
  const { rollout, attempt, task, sample, outcome: heldOutcome, leaf: heldLeaf, record } = row
  return {
    rollout,
    attempt,
    task,
    sample,
    state: 'held',
    heldOutcome,
    heldLeaf,
    get heldRecord(): BareRecord {
      return recordOf(rollout, record, blobs)
    },
  }
}

export function unacceptedOf(row: UnacceptedRow, blobs: BlobStore): UnacceptedAttempt {
  const { rollout, attempt, record } = row
  const isOpen = row.isOpen === 1
  if (record === null) return { rollout, attempt, isOpen }
  return {
    rollout,
    attempt,
    isOpen,
    get record(): BareRecord {
      return recordOf(rollout, record, blobs)
    },
  }
}

export function eventOf(row: EventRow, blobs: BlobStore): StoredEvent {
  const { rollout, attempt, name, at } = row
  const data = decoded(
    () => JSON.parse(blobs.text(row.data)) as Json,
    (cause) => damagedEvent(rollout, name, cause),
  )
  return { rollout, attempt, name, at, data }
}

/** The record in a `record` column, stored there or as a blob; throws if it could not be read. */
export function recordOf(rollout: string, stored: string | MillraceError, blobs: BlobStore): BareRecord {
  return storedRecord(rollout, recordText(rollout, stored, blobs))
}

function recordText(rollout: string, stored: string | MillraceError, blobs: BlobStore): string {
  if (stored instanceof MillraceError) throw stored
  return decoded(
    () => blobs.text(stored),
    (cause) => damagedRecord(rollout, cause),
  )
}
