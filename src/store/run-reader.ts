import { join } from 'node:path'
import type { DatabaseSync, StatementSync } from 'node:sqlite'
import type { MillraceError } from '../errors/index.ts'
import type { Message, MessageNode, Outcome, RolloutRecord } from '../schema/index.ts'
import { BlobStore } from './_blob-store.ts'
import { Conversations } from './_conversations.ts'
import { checkIntegrity } from './_integrity.ts'
import { openWithSpool, type OpenedWithSpool } from './_open-with-spool.ts'
import { damagedMessages, decoded } from './damage.ts'
import { EndedRows } from './_ended-rows.ts'
import { pages } from './_pages.ts'
import { RolloutEvents } from './_rollout-events.ts'
import { familyOf, SampledSpendings, type SampledSpending } from './_sampled-spending.ts'
import { storedMessage } from './_stored-message.ts'
import { StoredNodes } from './_stored-nodes.ts'
import { TaskRows, type TaskFacts } from './_task-rows.ts'
import { runFiles } from './run-folder.ts'
import {
  attemptOf,
  eventOf,
  heldOf,
  recordOf,
  rolloutOf,
  textOf,
  unacceptedOf,
  type AttemptRow,
  type EventRow,
  type RolloutRow,
  type UnacceptedRow,
  type UnfinishedRow,
} from './_run-rows.ts'
import { SessionReader } from './session-reader.ts'
import type {
  RunCounts,
  StoredAttempt,
  StoredEvent,
  StoredRollout,
  StoredTask,
  StoredText,
  UnacceptedAttempt,
  UnfinishedRollout,
} from './stored-run.ts'

const maxNamedTasks = 10

/**
 * Reads a run, while it is being written or afterwards, in the writing process or another. Durable entries are visible at once;
 * entries that are only `written` or `synced`, as replies of a gateway are, become visible when their process has committed them
 * or is gone.
 * Cheap to open; one per thread.
 */
export class RunReader implements Disposable {
  readonly folder: string
  /** The sessions of a gateway; a run of rollouts has none. */
  readonly sessions: SessionReader
  /** Why the last entries of a killed process are missing here, if they are. Lost frames are told by an event: `spoolDamaged`. */
  readonly spoolProblem: MillraceError | undefined
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
  #rolloutEvents: RolloutEvents | undefined
  #spendings: SampledSpendings | undefined

  private constructor(folder: string, { database, spoolProblem }: OpenedWithSpool) {
    this.folder = folder
    this.spoolProblem = spoolProblem
    this.#database = database
    this.#blobs = new BlobStore(join(folder, runFiles.blobs))
    this.#conversations = new Conversations(database, this.#blobs)
    this.#nodes = new StoredNodes(database, this.#blobs)
    this.sessions = new SessionReader({ database, blobs: this.#blobs, nodes: this.#nodes })
    this.#hasEnded = database.prepare('SELECT 1 FROM attempt WHERE rollout = ? AND result IS NOT NULL')
    this.#accepted = database.prepare(
      `SELECT attempt, leaf, record FROM rollout
       WHERE position = (SELECT result FROM attempt WHERE rollout = ? AND result IS NOT NULL)`,
    )
    this.#task = database.prepare('SELECT number AS "index", id, digest FROM task WHERE number = ?')
    this.#taskRows = new TaskRows(database, this.#blobs)
  }

  static open(folder: string): RunReader {
    return new RunReader(folder, openWithSpool(folder))
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

  /** The outcome of an ended rollout; undefined if it has not ended. */
  endedOutcome(rollout: string): Outcome | undefined {
    this.#endedOutcome ??= this.#database.prepare(
      `SELECT outcome FROM rollout
       WHERE position = (SELECT result FROM attempt WHERE rollout = ? AND result IS NOT NULL)`,
    )
    return this.#endedOutcome.get(rollout)?.['outcome'] as Outcome | undefined
  }

  /** The results in the order they were accepted, also those accepted during the iteration. */
  *ended(): Generator<StoredRollout, void, void> {
    for (const row of new EndedRows(this.#database).each()) yield rolloutOf(row, this.#blobs)
  }

  /** The same results as text, with messages. */
  *endedTexts(): Generator<StoredText, void, void> {
    for (const row of new EndedRows(this.#database).each()) yield textOf(row, this.#blobs, this.#conversations)
  }

  /** The accepted result with its messages. */
  rollout(id: string): RolloutRecord | undefined {
    const row = this.#accepted.get(id)
    if (!row) return undefined
    const { attempt, leaf, record } = row as Pick<RolloutRow, 'attempt' | 'leaf' | 'record'>
    const messages = this.conversation(id, attempt, leaf)
    return { ...recordOf(id, record, this.#blobs), messages }
  }

  /** The messages of an attempt up to the node that its conversation ends with. */
  conversation(rollout: string, attempt: number, leaf: number | null): Message[] {
    const texts = this.#conversations.messages(rollout, attempt, leaf)
    return decoded(
      () => texts.map(storedMessage),
      (cause) => damagedMessages(rollout, undefined, cause),
    )
  }

  /** Every message of an attempt, in the order it was recorded. */
  nodes(rollout: string, attempt: number): MessageNode[] {
    return Array.from(this.#nodes.of(rollout, attempt))
  }

  /** All attempts at a rollout, oldest first. */
  attempts(rollout: string): StoredAttempt[] {
    const statement = this.#database.prepare('SELECT * FROM attempt WHERE rollout = ? ORDER BY attempt')
    return statement.all(rollout).map((row) => attemptOf(row as AttemptRow, this.#blobs))
  }

  /** The attempts of the rollouts that this one started, in order. A child carries the attempt number of its parent. */
  children(rollout: string): StoredAttempt[] {
    const statement = this.#database.prepare(
      'SELECT * FROM attempt WHERE parent = ? ORDER BY started_at, rollout, attempt',
    )
    return statement.all(rollout).map((row) => attemptOf(row as AttemptRow, this.#blobs))
  }

  /** The ids of a rollout and of all its descendants in one of its attempts. */
  family(rollout: string, attempt: number): string[] {
    const statement = this.#database.prepare(`${familyOf} SELECT rollout FROM family`)
    return statement.all(rollout, attempt).map((row) => row['rollout'] as string)
  }

  /**
   * The unfinished rollouts as of the first step of the iteration: later starts do not appear. All their ids are held at once;
   * there are as many as ran at once, and those that were taken back to be run again.
   */
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
    const ended = this.#database.prepare('SELECT record FROM attempt WHERE rollout = ? AND attempt = ?')
    for (const row of found) {
      const { rollout, attempt, task, sample, outcome, leaf, discarded, hasRecord } = row
      if (outcome === null || !hasRecord || discarded) {
        yield { rollout, attempt, task, sample, state: discarded ? 'discarded' : 'cut-off' }
      } else {
        const { record } = ended.get(rollout, attempt) as { record: string }
        yield heldOf({ rollout, attempt, task, sample, outcome, leaf, record }, this.#blobs)
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
    for (const row of rows) yield unacceptedOf(row, this.#blobs)
  }

  /** What the model calls of an attempt and its children took, whether it ended or not. */
  sampled(rollout: string, attempt: number): SampledSpending {
    this.#spendings ??= new SampledSpendings(this.#database)
    return this.#spendings.of(rollout, attempt)
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

  /** The events of one name in one attempt. */
  eventsOf(rollout: string, attempt: number, name: string): StoredEvent[] {
    this.#rolloutEvents ??= new RolloutEvents(this.#database)
    return this.#rolloutEvents.rows(rollout, attempt, name).map((row) => eventOf(row as EventRow, this.#blobs))
  }

  /** What is wrong with the run, if anything: at most a few dozen lines. Reads everything. */
  integrity(): string[] {
    const content = { database: this.#database, blobs: this.#blobs, nodes: this.#nodes, sessions: this.sessions }
    return checkIntegrity(content, this.folder)
  }
}
