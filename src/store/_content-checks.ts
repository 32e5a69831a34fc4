import type { DatabaseSync } from 'node:sqlite'
import type { BlobStore } from './_blob-store.ts'
import { isDamage, isOutOfReach } from './damage.ts'
import { EndedRows } from './_ended-rows.ts'
import { eventOf, recordOf, type EventRow } from './_run-rows.ts'
import type { SessionReader } from './session-reader.ts'
import type { StoredNodes } from './_stored-nodes.ts'
import { TaskRows, type TaskFacts } from './_task-rows.ts'

export interface RunContent {
  readonly database: DatabaseSync
  readonly blobs: BlobStore
  readonly nodes: StoredNodes
  readonly sessions: SessionReader
}

/** Reads one item as its readers do, and throws if it is damaged. */
type Reading = () => unknown

/** One check per kind of content. Each finds the items that cannot be read, in the words that their readers would see. */
export function contentChecks(content: RunContent): (() => Iterable<string, void, void>)[] {
  const kinds = [results, attempts, nodes, events, sessions, taskRows]
  return kinds.map((readings) => () => damages(readings(content)))
}

function* damages(readings: Iterable<Reading>): Generator<string, void, void> {
  for (const read of readings) {
    const problem = damageIn(read)
    if (problem !== undefined) yield problem
  }
}

function damageIn(read: Reading): string | undefined {
  try {
    read()
    return undefined
  } catch (error) {
    if (isDamage(error)) return error.rawMessage
    // A file that cannot be opened just now may be whole; `blobProblems` looks at files one by one.
    if (isOutOfReach(error)) return undefined
    throw error
  }
}

function* results({ database, blobs }: RunContent): Generator<Reading, void, void> {
  for (const { id, record } of new EndedRows(database).each()) yield () => recordOf(id, record, blobs)
}

function* attempts({ database, blobs }: RunContent): Generator<Reading, void, void> {
  const rows = database.prepare('SELECT rollout, record FROM attempt WHERE record IS NOT NULL').iterate()
  for (const row of rows) {
    const { rollout, record } = row as { rollout: string; record: string }
    yield () => recordOf(rollout, record, blobs)
  }
}

function nodes(content: RunContent): Iterable<Reading> {
  return content.nodes.readings()
}

function* events({ database, blobs }: RunContent): Generator<Reading, void, void> {
  const rows = database.prepare('SELECT * FROM event ORDER BY position').iterate()
  for (const row of rows) yield () => eventOf(row as EventRow, blobs)
}

function* taskRows({ database, blobs }: RunContent): Generator<Reading, void, void> {
  const rows = new TaskRows(database, blobs)
  // Once for all tasks that have the same row.
  const tasks = database.prepare('SELECT min(number) AS "index", digest FROM task GROUP BY digest').iterate()
  for (const task of tasks) yield () => rows.textOf(task as Pick<TaskFacts, 'index' | 'digest'>)
}

function* sessions(content: RunContent): Generator<Reading, void, void> {
  for (const session of content.sessions.each()) yield () => session.data
}
