import type { DatabaseSync, StatementSync } from 'node:sqlite'
import { emptyUsage, isJsonObject, type Json, type Outcome, outcomes, type RolloutRecord } from '../../schema/index.ts'
import type { BlobStore } from '../write/blob-store.ts'
import { pages } from '../write/database.ts'
import type { Conversations } from './conversations.ts'
import { decoded } from './damage.ts'

/** The record of an attempt or rollout without its messages, which `nodes` and `rollout` return. */
export type BareRecord = Omit<RolloutRecord, 'messages'>

export interface RolloutFacts {
  readonly rollout: string
  readonly attempt: number
  readonly task: number
  readonly sample: number
  readonly outcome: Outcome
  readonly reward: number | null
  readonly endedAt: number
}

export interface StoredRollout extends RolloutFacts {
  /** The message that its conversation ended with; null if it has none. */
  readonly leaf: number | null
  /** Decoded on access, which throws if it is damaged. */
  readonly record: BareRecord
}

/** An attempt that has ended. */
export type EndedAttempt = StoredAttempt & Required<Pick<StoredAttempt, 'end'>>

/** One attempt. `end` is missing while it runs and after it was cut off. */
export interface StoredAttempt {
  readonly rollout: string
  readonly attempt: number
  readonly parent: string | null
  readonly task: number
  readonly sample: number
  readonly startedAt: number
  readonly end?: {
    readonly at: number
    readonly outcome: Outcome
    /** Decoded on access, which throws if it is damaged. */
    readonly record: BareRecord
    readonly leaf: number | null
  }
  /** The attempt does not count: its rollout started over, or its result was taken back by `retryFailed`. */
  readonly discarded: boolean
}

/** A rollout of the run itself that has no accepted result yet, by its latest attempt. */
export interface UnfinishedRollout {
  readonly rollout: string
  readonly attempt: number
  readonly task: number
  readonly sample: number
  /** `held`: the attempt ended and waits for its group. `discarded`: it does not count; run the next attempt. */
  readonly state: 'cut-off' | 'held' | 'discarded'
  readonly heldOutcome?: Outcome
  /** The held attempt's record. Decoded on access, which throws if it is damaged. */
  readonly heldRecord?: BareRecord
  readonly heldLeaf?: number | null
}

export interface UnacceptedAttempt {
  readonly rollout: string
  readonly attempt: number
  /** Whether the attempt may still be accepted: it runs, it was cut off, or it waits for its group. */
  readonly isOpen: boolean
  /** The attempt's record, if it ended. Decoded on access, which throws if it is damaged. */
  readonly record?: BareRecord
}

export type AttemptSpending = Pick<RolloutRecord, 'usage' | 'judgeUsage' | 'cost'>

export interface StoredTask {
  readonly index: number
  readonly id: string
  readonly digest: string
  /** The row before the environment's schema; undefined if it was no JSON. Decoded on access, which throws if it is damaged. */
  readonly row: Json | undefined
}

export interface StoredEvent {
  readonly position: number
  readonly rollout: string | null
  readonly attempt: number
  readonly name: string
  readonly at: number
  readonly data: Json
}

export interface RunCounts {
  readonly tasks: number
  readonly attempts: number
  readonly nodes: number
  readonly ended: number
  readonly outcomes: Readonly<Partial<Record<Outcome, number>>>
}

/** A stored result as JSON text, for callers that only pass it on. */
export interface StoredText extends RolloutFacts {
  /** Read on access, which throws if it cannot be read. Not checked to be JSON. */
  readonly text: { readonly record: string; readonly messages: readonly string[] }
}

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

export const rolloutColumns = 'position, id, task, sample, attempt, outcome, reward, leaf, ended_at, record'

/** The rows of results after a position in the order they were accepted, also those accepted during the iteration. */
export function endedRows(database: DatabaseSync, position = -1): Generator<RolloutRow, void, void> {
  const page = database.prepare(`SELECT ${rolloutColumns} FROM rollout WHERE position > ? ORDER BY position LIMIT ?`)
  return pages<RolloutRow>((last, count) => page.all(last?.position ?? position, count) as RolloutRow[])
}

export function rolloutOf(row: RolloutRow, blobs: BlobStore): StoredRollout {
  return {
    ...factsOf(row),
    leaf: row.leaf,
    get record(): BareRecord {
      return recordOf(row.id, row.record, blobs)
    },
  }
}

export function textOf(row: RolloutRow, blobs: BlobStore, conversations: Conversations): StoredText {
  return {
    ...factsOf(row),
    get text(): StoredText['text'] {
      const { id, attempt, leaf } = row
      return { record: recordText(id, row.record, blobs), messages: conversations.messages(id, attempt, leaf) }
    },
  }
}

function factsOf({ id, attempt, task, sample, outcome, reward, ended_at: endedAt }: RolloutRow): RolloutFacts {
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

export function eventOf(row: EventRow, blobs: BlobStore): StoredEvent {
  const { position, rollout, attempt, name, at } = row
  const what = `an event ${name} of ${rollout ?? 'the run'}`
  const data = decoded(what, () => JSON.parse(blobs.text(row.data)) as Json)
  return { position, rollout, attempt, name, at, data }
}

export function recordOf(rollout: string, stored: string, blobs: BlobStore): BareRecord {
  return storedRecord(rollout, recordText(rollout, stored, blobs))
}

function recordText(rollout: string, stored: string, blobs: BlobStore): string {
  return decoded(`the result of rollout ${rollout}`, () => blobs.text(stored))
}

/** Fields that readers use without asking whether they are there. */
const objects = ['task', 'rewards', 'metrics', 'timing'] as const satisfies (keyof BareRecord)[]

const counts = Object.keys(emptyUsage())

/** A rollout's record from its JSON. It was valid when it was written; only what readers rely on is checked. */
export function storedRecord(rollout: string, text: string): BareRecord {
  return decoded(`the result of rollout ${rollout}`, () => {
    const value: unknown = JSON.parse(text)
    if (!isRecordOf(rollout, value)) throw new Error('it is not a record of that rollout')
    return value
  })
}

function isRecordOf(rollout: string, value: unknown): value is BareRecord {
  if (!isJsonObject(value)) return false
  const { id, outcome } = value
  if (id !== rollout || typeof outcome !== 'string' || !Object.hasOwn(outcomes, outcome)) return false
  return objects.every((name) => isJsonObject(value[name])) && isUsage(value['usage']) && isUsage(value['judgeUsage'])
}

function isUsage(value: unknown): boolean {
  return isJsonObject(value) && counts.every((name) => typeof value[name] === 'number')
}

export type TaskFacts = { index: number; id: string; digest: string }

/** The rows of tasks. Each is stored once, by its digest, however many tasks have it. */
export class TaskRows {
  readonly #row: StatementSync
  readonly #blobs: BlobStore

  constructor(database: DatabaseSync, blobs: BlobStore) {
    this.#row = database.prepare('SELECT row FROM task_row WHERE digest = ?')
    this.#blobs = blobs
  }

  taskOf({ index, id, digest }: TaskFacts): StoredTask {
    const value = (): Json | undefined => this.#read({ index, digest })?.value
    return {
      index,
      id,
      digest,
      get row(): Json | undefined {
        return value()
      },
    }
  }

  textOf(task: Pick<TaskFacts, 'index' | 'digest'>): string | undefined {
    return this.#read(task)?.text
  }

  #read({ index, digest }: Pick<TaskFacts, 'index' | 'digest'>): { text: string; value: Json } | undefined {
    return decoded(`the row of task ${index}`, () => {
      const stored = this.#row.get(digest)
      if (!stored) return undefined
      const text = this.#blobs.text(stored['row'])
      return { text, value: JSON.parse(text) as Json }
    })
  }
}
