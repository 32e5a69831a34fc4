import { closeSync, openSync, readSync } from 'node:fs'
import { join } from 'node:path'
import type { DatabaseSync } from 'node:sqlite'
import { LineSplitter } from '../../kit/index.ts'
import { isCorrupt } from '../run/failures.ts'
import { runFiles } from '../run/run-folder.ts'
import { type BlobStore, isReference } from '../write/blob-store.ts'
import { wholeSession } from '../write/journal.ts'
import { linesLength } from '../write/rollout-lines.ts'
import { isDamage, isUnavailable } from './damage.ts'
import type { SessionReader } from './session-reader.ts'
import type { StoredNodes } from './stored-nodes.ts'
import { endedRows, eventOf, type EventRow, recordOf, type TaskFacts, TaskRows } from './stored-run.ts'

/** Problems per check; a run that is broken throughout need not say so a million times. */
const maxPerCheck = 20
const chunkBytes = 1024 * 1024

interface RunContent {
  readonly database: DatabaseSync
  readonly blobs: BlobStore
  readonly nodes: StoredNodes
  readonly sessions: SessionReader
}

/** Everything that can be checked about a run without knowing what it was for. */
export function checkIntegrity(content: RunContent, folder: string): string[] {
  const { database, blobs } = content
  const checks: readonly Check[] = [
    () => pageProblems(database),
    ...rowChecks.map((check) => () => rowProblems(database, check)),
    () => blobProblems(database, blobs),
    ...contentChecks(content),
    () => lineProblems(database, join(folder, runFiles.lines)),
  ]
  // One transaction, so that a run in progress is seen at one moment.
  database.exec('BEGIN')
  try {
    // Duplicates are removed: an attempt's record is mostly its rollout's, too, and may be in the same blob.
    return Array.from(new Set(checks.flatMap((check) => Array.from(problems(check).take(maxPerCheck)))))
  } finally {
    // Nothing was written, and SQLite commits nothing after it met a corrupt page.
    database.exec('ROLLBACK')
  }
}

/** A field of a node's meta. Meta that is no JSON does not fail the statement: the content checks find it. */
const fromMeta = (node: string, field: string): string =>
  `CASE WHEN json_valid(${node}.meta) THEN ${node}.meta ->> '${field}' END`

/** Each check finds rows that must not exist, and says what they mean. */
const rowChecks: readonly RowCheck[] = [
  {
    sql: 'SELECT id, count(*) AS n FROM rollout GROUP BY id HAVING n > 1',
    describe: (row) => `rollout ${row['id']} has ${row['n']} results`,
  },
  {
    sql: `SELECT id, attempt FROM rollout WHERE NOT EXISTS
            (SELECT 1 FROM attempt WHERE attempt.rollout = rollout.id AND attempt.attempt = rollout.attempt)`,
    describe: (row) => `the result of rollout ${row['id']} names attempt ${row['attempt']}, which never started`,
  },
  {
    sql: `SELECT rollout, attempt FROM attempt WHERE result IS NOT NULL AND NOT EXISTS
            (SELECT 1 FROM rollout WHERE position = result AND id = attempt.rollout AND rollout.attempt = attempt.attempt)`,
    describe: (row) => `rollout ${row['rollout']} attempt ${row['attempt']} was accepted and its result is missing`,
  },
  {
    sql: `SELECT rollout, attempt, count(*) AS n, count(DISTINCT seq) AS distinct_n, min(seq) AS low, max(seq) AS high
          FROM node GROUP BY rollout, attempt HAVING n <> distinct_n OR high - low + 1 <> n OR low > 1`,
    describe: (row) =>
      `rollout ${row['rollout']} attempt ${row['attempt']}: ${row['n']} messages are numbered ${row['low']} to ${row['high']}`,
  },
  {
    sql: `SELECT DISTINCT rollout, attempt FROM node
          WHERE NOT EXISTS
            (SELECT 1 FROM attempt WHERE attempt.rollout = node.rollout AND attempt.attempt = node.attempt)
          AND NOT (attempt = 0 AND EXISTS (SELECT 1 FROM session WHERE session.id = node.rollout))`,
    describe: (row) => `messages of rollout ${row['rollout']} attempt ${row['attempt']}, which never started`,
  },
  {
    sql: `SELECT rollout, attempt, seq FROM node WHERE parent IS NOT NULL AND NOT EXISTS
            (SELECT 1 FROM node AS before WHERE before.rollout = node.rollout AND before.attempt = node.attempt
                                            AND before.seq = node.parent)`,
    describe: (row) => `rollout ${row['rollout']} attempt ${row['attempt']}: message ${row['seq']} has lost its parent`,
  },
  {
    sql: `SELECT id, leaf FROM rollout WHERE leaf IS NOT NULL AND NOT EXISTS
            (SELECT 1 FROM node WHERE node.rollout = rollout.id AND node.attempt = rollout.attempt AND node.seq = leaf)`,
    describe: (row) => `rollout ${row['id']} ends with message ${row['leaf']}, which is missing`,
  },
  {
    sql: 'SELECT rollout, attempt, seq, parent FROM node WHERE parent >= seq',
    describe: (row) =>
      `rollout ${row['rollout']} attempt ${row['attempt']}: message ${row['seq']} follows message ${row['parent']}, which came later`,
  },
  {
    sql: `SELECT rollout, attempt, seq FROM node WHERE ${fromMeta('node', 'promptAfter')} IS NOT NULL AND NOT EXISTS
            (SELECT 1 FROM node AS base WHERE base.rollout = node.rollout AND base.attempt = node.attempt
                                          AND base.seq = ${fromMeta('node', 'promptAfter')} AND base.position < node.position
                                          AND base.prompt_ids IS NOT NULL AND ${fromMeta('base', 'discarded')} IS NULL)`,
    describe: (row) =>
      `rollout ${row['rollout']} attempt ${row['attempt']}: the prompt of message ${row['seq']} has lost the message it builds on`,
  },
  {
    sql: `SELECT id, min(seq) AS seq FROM session JOIN node ON node.rollout = session.id AND node.attempt = 0
          WHERE ended_at IS NOT NULL AND node.position > ifnull(last_node, 0) GROUP BY id`,
    describe: (row) => `session ${row['id']} goes on with message ${row['seq']} after its end`,
  },
  {
    sql: `SELECT session, node FROM reward WHERE NOT EXISTS (SELECT 1 FROM session WHERE session.id = reward.session)`,
    describe: (row) => `a reward for session ${row['session']}, which never started`,
  },
  {
    sql: `SELECT session, node FROM reward WHERE node <> ${wholeSession} AND NOT EXISTS
            (SELECT 1 FROM node AS rewarded WHERE rewarded.rollout = reward.session AND rewarded.attempt = 0
                                              AND rewarded.seq = reward.node AND rewarded.sampled = 1)`,
    describe: (row) => `session ${row['session']} has a reward for message ${row['node']}, which was not sampled`,
  },
]

const payloadColumns = [
  ['node', 'message'],
  ['node', 'prompt_ids'],
  ['node', 'ids'],
  ['node', 'logprobs'],
  ['node', 'routed_experts'],
  ['attempt', 'record'],
  ['rollout', 'record'],
  ['event', 'data'],
  ['session', 'data'],
  ['task_row', 'row'],
] as const

type Row = Readonly<Record<string, string | number>>

interface RowCheck {
  readonly sql: string
  readonly describe: (row: Row) => string
}

type Check = () => Iterable<string, void, void>

/** A corrupt page ends the check that meets it, and not the others. */
function* problems(check: Check): Generator<string, void, void> {
  try {
    yield* check()
  } catch (error) {
    if (!isCorrupt(error)) throw error
    yield `${runFiles.database} is damaged: ${(error as Error).message}`
  }
}

function* pageProblems(database: DatabaseSync): Generator<string, void, void> {
  for (const row of database.prepare('PRAGMA integrity_check').iterate()) {
    if (row['integrity_check'] !== 'ok') yield String(row['integrity_check'])
  }
}

function* rowProblems(database: DatabaseSync, { sql, describe }: RowCheck): Generator<string, void, void> {
  for (const row of database.prepare(sql).iterate()) yield describe(row as Row)
}

function* blobProblems(database: DatabaseSync, blobs: BlobStore): Generator<string, void, void> {
  for (const [table, column] of payloadColumns) {
    const rows = database.prepare(
      `SELECT DISTINCT ${column} AS reference FROM ${table} WHERE typeof(${column}) = 'text' AND ${column} GLOB 'blob:*'`,
    )
    for (const { reference } of rows.iterate()) {
      const problem = isReference(reference) ? blobs.problem(reference) : undefined
      if (problem !== undefined) yield `${table}.${column}: ${problem}`
    }
  }
}

/** The lines must be the accepted results, in order, each of them JSON, up to the length that was committed. */
function* lineProblems(database: DatabaseSync, path: string): Generator<string, void, void> {
  const length = linesLength(database)
  if (length < 0) {
    yield `${path} is due to be rebuilt; open the run once to do so`
    return
  }
  const ids = database.prepare('SELECT id FROM rollout ORDER BY position').iterate()
  let number = 0
  try {
    for (const line of readLines(path, length)) {
      number += 1
      const expected = ids.next().value?.['id']
      const found = idOf(line)
      if (found === expected) continue
      yield `${path} line ${number} belongs to rollout ${String(found)}, expected ${String(expected)}`
    }
  } catch (error) {
    if (isCorrupt(error)) throw error
    yield `${path} cannot be read: ${String(error)}`
    return
  }
  let missing = 0
  while (!ids.next().done) missing += 1
  if (missing > 0) yield `${path} lacks the last ${missing} results`
}

function idOf(line = ''): unknown {
  try {
    return (JSON.parse(line) as { id?: unknown }).id
  } catch {
    return 'unknown (not JSON)'
  }
}

function* readLines(path: string, length: number): Generator<string | undefined, void, void> {
  if (length === 0) return
  const descriptor = openSync(path, 'r')
  try {
    const splitter = new LineSplitter(Infinity)
    for (let position = 0; position < length; position += chunkBytes) {
      const chunk = Buffer.alloc(Math.min(chunkBytes, length - position))
      const read = readSync(descriptor, chunk, { position })
      yield* splitter.push(chunk.subarray(0, read))
    }
    yield* splitter.end()
  } finally {
    closeSync(descriptor)
  }
}

type Reading = () => unknown

/** One check per kind of content. Each finds the items that cannot be read, in the words that their readers would see. */
function contentChecks({ database, blobs, nodes, sessions }: RunContent): Check[] {
  const rows = (sql: string) => database.prepare(sql).iterate()
  const kinds: readonly (() => Iterable<Reading>)[] = [
    () =>
      endedRows(database).map(
        ({ id, record }) =>
          () =>
            recordOf(id, record, blobs),
      ),
    () =>
      rows('SELECT rollout, record FROM attempt WHERE record IS NOT NULL').map(
        ({ rollout, record }) =>
          () =>
            recordOf(rollout as string, record as string, blobs),
      ),
    () => nodes.readings(),
    () => rows('SELECT * FROM event ORDER BY position').map((row) => () => eventOf(row as EventRow, blobs)),
    () => sessions.each().map((session) => () => session.data),
    () => {
      const taskRows = new TaskRows(database, blobs)
      // Once for all tasks that have the same row.
      const tasks = rows('SELECT min(number) AS "index", digest FROM task GROUP BY digest')
      return tasks.map((task) => () => taskRows.textOf(task as TaskFacts))
    },
  ]
  return kinds.map((readings) => () => damages(readings()))
}

function* damages(readings: Iterable<Reading>): Generator<string, void, void> {
  for (const read of readings) {
    try {
      read()
    } catch (error) {
      if (isDamage(error)) yield error.rawMessage
      // A file that cannot be opened just now may be whole; `blobProblems` looks at files one by one.
      else if (!isUnavailable(error)) throw error
    }
  }
}
