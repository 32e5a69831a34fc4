import { join } from 'node:path'
import type { DatabaseSync, StatementSync } from 'node:sqlite'
import { roundedSum } from '../../kit/index.ts'
import {
  emptyUsage,
  type Message,
  type MessageNode,
  type Outcome,
  type RolloutRecord,
  type Usage,
} from '../../schema/index.ts'
import { isCorrupt, storeFailure } from '../run/failures.ts'
import { runFiles } from '../run/run-folder.ts'
import { BlobStore } from '../write/blob-store.ts'
import { openForReading, pages } from '../write/database.ts'
import { Conversations, storedMessage } from './conversations.ts'
import { decoded } from './damage.ts'
import { checkIntegrity } from './integrity.ts'
import { SessionReader } from './session-reader.ts'
import { type NodeWithoutTokens, StoredNodes } from './stored-nodes.ts'
import {
  attemptOf,
  type AttemptRow,
  type AttemptSpending,
  type BareRecord,
  type EndedAttempt,
  endedRows,
  eventOf,
  type EventRow,
  recordOf,
  rolloutColumns,
  rolloutOf,
  type RolloutRow,
  type RunCounts,
  type StoredAttempt,
  type StoredEvent,
  type StoredRollout,
  type StoredTask,
  type StoredText,
  type TaskFacts,
  TaskRows,
  textOf,
  type UnacceptedAttempt,
  type UnfinishedRollout,
} from './stored-run.ts'

const maxNamedTasks = 10

/** Reads a run, while it is being written or afterwards. Durable entries are visible at once. One per thread. */
export class RunReader implements Disposable {
  readonly folder: string
  /** The sessions of a gateway; a run of rollouts has none. */
  readonly sessions: SessionReader
  readonly #database: DatabaseSync
  readonly #blobs: BlobStore
  readonly #conversations: Conversations
  readonly #nodes: StoredNodes
  readonly #hasEnded: StatementSync
  readonly #accepted: StatementSync
  readonly #task: StatementSync
  readonly #taskRows: TaskRows
  #endedOutcome: StatementSync | undefined
  #rolloutsOf: StatementSync | undefined
  #children: StatementSync | undefined
  #eventsOf: StatementSync | undefined
  #spending: StatementSync | undefined

  private constructor(folder: string, database: DatabaseSync) {
    this.folder = folder
    this.#database = database
    this.#blobs = new BlobStore(join(folder, runFiles.blobs))
    this.#conversations = new Conversations(database, this.#blobs)
    this.#nodes = new StoredNodes(database, this.#blobs)
    this.sessions = new SessionReader({ database, blobs: this.#blobs, nodes: this.#nodes })
    this.#hasEnded = database.prepare('SELECT 1 FROM attempt WHERE rollout = ? AND result IS NOT NULL')
    this.#accepted = database.prepare(
      `SELECT ${rolloutColumns} FROM rollout
       WHERE position = (SELECT result FROM attempt WHERE rollout = ? AND result IS NOT NULL)`,
    )
    this.#task = database.prepare('SELECT number AS "index", id, digest FROM task WHERE number = ?')
    this.#taskRows = new TaskRows(database, this.#blobs)
    database.function('payload', (stored) => this.#blobs.text(stored))
  }

  static open(folder: string): RunReader {
    return new RunReader(folder, openForReading(folder))
  }

  [Symbol.dispose](): void {
    if (this.#database.isOpen) this.#database.close()
  }

  counts(): RunCounts {
    const outcomes: Partial<Record<Outcome, number>> = {}
    let ended = 0
    for (const row of this.#database.prepare('SELECT outcome, count(*) AS n FROM rollout GROUP BY outcome').all()) {
      outcomes[row['outcome'] as Outcome] = row['n'] as number
      ended += row['n'] as number
    }
    const count = (table: string): number =>
      this.#database.prepare(`SELECT count(*) AS n FROM ${table}`).get()?.['n'] as number
    return { tasks: count('task'), attempts: count('attempt'), nodes: count('node'), ended, outcomes }
  }

  hasEnded(rollout: string): boolean {
    return this.#hasEnded.get(rollout) !== undefined
  }

  endedOutcome(rollout: string): Outcome | undefined {
    this.#endedOutcome ??= this.#database.prepare(
      `SELECT outcome FROM rollout
       WHERE position = (SELECT result FROM attempt WHERE rollout = ? AND result IS NOT NULL)`,
    )
    return this.#endedOutcome.get(rollout)?.['outcome'] as Outcome | undefined
  }

  /** The results in the order they were accepted, also those accepted during the iteration. */
  *ended(): Generator<StoredRollout, void, void> {
    for (const row of this.#endedRows()) yield rolloutOf(row, this.#blobs)
  }

  *endedTexts(): Generator<StoredText, void, void> {
    for (const row of this.#endedRows()) yield textOf(row, this.#blobs, this.#conversations)
  }

  rollout(id: string): RolloutRecord | undefined {
    const stored = this.result(id)
    return stored && { ...stored.record, messages: this.conversation(id, stored.attempt, stored.leaf) }
  }

  /** The accepted result of a rollout, without its messages. */
  result(id: string): StoredRollout | undefined {
    const row = this.#accepted.get(id)
    return row && rolloutOf(row as RolloutRow, this.#blobs)
  }

  conversation(rollout: string, attempt: number, leaf: number | null): Message[] {
    const texts = this.#conversations.messages(rollout, attempt, leaf)
    return decoded(`a message of ${rollout}`, () => texts.map(storedMessage))
  }

  nodes(rollout: string, attempt: number): MessageNode[] {
    return Array.from(this.eachNode(rollout, attempt))
  }

  /** The same nodes, of which a few are held at a time. */
  eachNode(rollout: string, attempt: number): Generator<MessageNode, void, void> {
    return this.#nodes.of(rollout, attempt)
  }

  bareNodes(rollout: string, attempt: number): Generator<NodeWithoutTokens, void, void> {
    return this.#nodes.bareOf(rollout, attempt)
  }

  /** One message by its number, once it is durable. */
  bareNode(rollout: string, attempt: number, seq: number): NodeWithoutTokens | undefined {
    return this.#nodes.bareAt(rollout, attempt, seq)
  }

  firstWithoutTokens(rollout: string, attempt: number): number | undefined {
    return this.#nodes.firstWithoutTokens(rollout, attempt)
  }

  attempts(rollout: string): StoredAttempt[] {
    const statement = this.#database.prepare('SELECT * FROM attempt WHERE rollout = ? ORDER BY attempt')
    return statement.all(rollout).map((row) => attemptOf(row as AttemptRow, this.#blobs))
  }

  /** The attempts of the rollouts that this one started, in order. A child carries the attempt number of its parent. */
  children(rollout: string): StoredAttempt[] {
    this.#children ??= this.#database.prepare(
      'SELECT * FROM attempt WHERE parent = ? ORDER BY started_at, rollout, attempt',
    )
    return this.#children.all(rollout).map((row) => attemptOf(row as AttemptRow, this.#blobs))
  }

  /** The children of an attempt that have ended, those of children included. */
  *descendants(rollout: string, attempt: number): Generator<EndedAttempt, void, void> {
    for (const child of this.children(rollout)) {
      if (child.attempt !== attempt) continue
      const { end } = child
      if (end) yield { ...child, end }
      yield* this.descendants(child.rollout, attempt)
    }
  }

  /** As of the first step of the iteration. All their ids are held at once: there are as many as ran at once. */
  *unfinished(): Generator<UnfinishedRollout, void, void> {
    const found = this.#database
      .prepare(
        `SELECT rollout, attempt, task, sample, outcome, leaf, discarded, record IS NOT NULL AS hasRecord FROM attempt
         WHERE parent IS NULL AND result IS NULL
           AND NOT EXISTS (SELECT 1 FROM attempt AS other WHERE other.rollout = attempt.rollout
                           AND (other.attempt > attempt.attempt OR other.result IS NOT NULL))
         ORDER BY started_at, rollout`,
      )
      .all() as UnfinishedRow[]
    const stored = this.#database.prepare('SELECT record FROM attempt WHERE rollout = ? AND attempt = ?')
    for (const { outcome: heldOutcome, leaf: heldLeaf, discarded, hasRecord, ...facts } of found) {
      if (heldOutcome === null || !hasRecord || discarded) {
        yield { ...facts, state: discarded ? 'discarded' : 'cut-off' }
        continue
      }
      const { rollout, attempt } = facts
      const { record } = stored.get(rollout, attempt) as { record: string }
      const heldRecord = (): BareRecord => recordOf(rollout, record, this.#blobs)
      yield {
        ...facts,
        state: 'held',
        heldOutcome,
        heldLeaf,
        get heldRecord() {
          return heldRecord()
        },
      }
    }
  }

  /** Attempts that are not an accepted result, without children: their tokens and money were spent all the same. */
  *unaccepted(): Generator<UnacceptedAttempt, void, void> {
    const page = this.#database.prepare(
      `SELECT rollout, attempt, record,
              discarded = 0 AND NOT EXISTS (SELECT 1 FROM attempt AS other WHERE other.rollout = attempt.rollout
                AND (other.attempt > attempt.attempt OR other.result IS NOT NULL)) AS isOpen
       FROM attempt WHERE (rollout, attempt) > (?, ?) AND parent IS NULL AND result IS NULL
       ORDER BY rollout, attempt LIMIT ?`,
    )
    const rows = pages<UnacceptedRow>(
      (last, count) => page.all(last?.rollout ?? '', last?.attempt ?? 0, count) as UnacceptedRow[],
    )
    const blobs = this.#blobs
    for (const { rollout, attempt, isOpen, record } of rows) {
      const facts = { rollout, attempt, isOpen: isOpen === 1 }
      if (record === null) yield facts
      else {
        yield {
          ...facts,
          get record() {
            return recordOf(rollout, record, blobs)
          },
        }
      }
    }
  }

  /** What was spent on an attempt and its children in all launches, whether it ended or not. */
  spending(rollout: string, attempt: number): AttemptSpending {
    const statement = (this.#spending ??= this.#database.prepare(spendingSum))
    const rows = decoded(`a message of ${rollout}`, () => statement.all(rollout, attempt)) as SpendingRow[]
    const usages = { usage: emptyUsage(), judgeUsage: emptyUsage() }
    for (const { kind, cost: _cost, estimated, captured, laterTurns, driftedTurns, driftedTokens, ...usage } of rows) {
      usages[kind] = {
        ...usage,
        ...(estimated > 0 && { estimated }),
        ...(captured !== null && { captured }),
        ...(laterTurns > 0 && { laterTurns }),
        ...(driftedTurns > 0 && { driftedTurns, driftedTokens }),
      }
    }
    const isKnown = rows.every(({ cost }) => cost !== null)
    return { ...usages, cost: isKnown ? roundedSum(rows.reduce((sum, { cost }) => sum + (cost ?? 0), 0)) : null }
  }

  task(index: number): StoredTask | undefined {
    const row = this.#task.get(index)
    return row && this.#taskRows.taskOf(row as TaskFacts)
  }

  /** All tasks that rollouts have begun with, or that were to begin next, by their indexes. */
  *tasks(): Generator<StoredTask, void, void> {
    const page = this.#database.prepare(
      'SELECT number AS "index", id, digest FROM task WHERE number > ? ORDER BY number LIMIT ?',
    )
    const rows = pages<TaskFacts>((last, count) => page.all(last?.index ?? -1, count) as TaskFacts[])
    for (const row of rows) yield this.#taskRows.taskOf(row)
  }

  /** The JSON text of a task's row, for callers that only pass it on; undefined if there is none. Throws if it is damaged. */
  taskRowText(index: number): string | undefined {
    const row = this.#task.get(index)
    return row && this.#taskRows.textOf(row as TaskFacts)
  }

  /** The indexes of the tasks with this id, up to ten of them: ids need not be unique. Looks at all tasks. */
  tasksWithId(id: string): number[] {
    const statement = this.#database.prepare('SELECT number FROM task WHERE id = ? ORDER BY number LIMIT ?')
    return statement.all(id, maxNamedTasks).map((row) => row['number'] as number)
  }

  /** The rollouts of a task that have begun, without children, by their samples. */
  rolloutsOf(task: number, limit = Number.MAX_SAFE_INTEGER): string[] {
    // Their ids begin with the index and a dash, so that the primary key finds them; the dot is the character after the dash.
    this.#rolloutsOf ??= this.#database.prepare(
      `SELECT DISTINCT rollout FROM attempt WHERE rollout > ? AND rollout < ? AND parent IS NULL ORDER BY sample LIMIT ?`,
    )
    return this.#rolloutsOf.all(`${task}-`, `${task}.`, limit).map((row) => row['rollout'] as string)
  }

  /** Ids that several tasks share, up to ten of them: the first ones show what is wrong. Looks at all tasks. */
  repeatedTaskIds(): string[] {
    const statement = this.#database.prepare(
      'SELECT id FROM task GROUP BY id HAVING count(*) > 1 ORDER BY min(number) LIMIT ?',
    )
    return statement.all(maxNamedTasks).map((row) => row['id'] as string)
  }

  *events(name?: string): Generator<StoredEvent, void, void> {
    const page = this.#database.prepare(
      `SELECT * FROM event WHERE position > ?1 AND (?3 IS NULL OR name = ?3) ORDER BY position LIMIT ?2`,
    )
    const rows = pages<EventRow>((last, count) => page.all(last?.position ?? -1, count, name ?? null) as EventRow[])
    for (const row of rows) yield eventOf(row, this.#blobs)
  }

  eventsOf(rollout: string, attempt: number, name: string): StoredEvent[] {
    this.#eventsOf ??= this.#database.prepare(
      'SELECT * FROM event WHERE rollout = ? AND attempt = ? AND name = ? ORDER BY position',
    )
    return this.#eventsOf.all(rollout, attempt, name).map((row) => eventOf(row as EventRow, this.#blobs))
  }

  /** Results are read in order, so that a corrupt page hides those after it: the database is refused. */
  *#endedRows(): Generator<RolloutRow, void, void> {
    try {
      yield* endedRows(this.#database)
    } catch (error) {
      throw isCorrupt(error) ? storeFailure(error, this.folder) : error
    }
  }

  /** What is wrong with the run, if anything: at most a few dozen lines. Reads everything. */
  integrity(): string[] {
    const content = { database: this.#database, blobs: this.#blobs, nodes: this.#nodes, sessions: this.sessions }
    return checkIntegrity(content, this.folder)
  }
}

/** Sums the calls of models and of judges by a rollout (?1) in one of its attempts (?2), with all children below it. */
const spendingSum = `
  WITH RECURSIVE family (rollout) AS (
    SELECT ?1 UNION ALL
    SELECT attempt.rollout FROM attempt JOIN family ON attempt.parent = family.rollout WHERE attempt.attempt = ?2
  ), call (kind, usage, cost) AS (
    SELECT 'usage', meta -> '$.call.usage', meta ->> '$.call.cost'
    FROM family JOIN node ON node.rollout = family.rollout AND node.attempt = ?2
    UNION ALL
    SELECT 'judgeUsage', payload(data) -> '$.usage', payload(data) ->> '$.cost'
    FROM family JOIN event ON event.rollout = family.rollout AND event.attempt = ?2 AND event.name = 'judge-call'
  )
  SELECT kind,
         total(usage ->> '$.calls') AS calls,
         total(usage ->> '$.input') AS input,
         total(usage ->> '$.cachedInput') AS cachedInput,
         total(usage ->> '$.output') AS output,
         total(usage ->> '$.reasoning') AS reasoning,
         total(usage ->> '$.estimated') AS estimated,
         sum(usage ->> '$.captured') AS captured,
         total(usage ->> '$.laterTurns') AS laterTurns,
         total(usage ->> '$.driftedTurns') AS driftedTurns,
         total(usage ->> '$.driftedTokens') AS driftedTokens,
         CASE count(usage) WHEN count(cost) THEN total(cost) END AS cost
  FROM call GROUP BY kind`

// Aliases, not interfaces: only aliases can be asserted from the index signature that node:sqlite returns.
type SpendingRow = Required<Omit<Usage, 'captured'>> & {
  kind: 'usage' | 'judgeUsage'
  captured: number | null
  cost: number | null
}

type UnfinishedRow = {
  rollout: string
  attempt: number
  task: number
  sample: number
  outcome: Outcome | null
  leaf: number | null
  discarded: number
  hasRecord: number
}

type UnacceptedRow = {
  rollout: string
  attempt: number
  isOpen: number
  record: string | null
}
