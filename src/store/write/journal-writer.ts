import { join } from 'node:path'
import type { DatabaseSync, StatementSync } from 'node:sqlite'
import type { Outcome } from '../../schema/index.ts'
import { BlobStore } from './blob-store.ts'
import { openForWriting } from './database.ts'
import { rolloutLine } from '../read/rollout-line.ts'
import { RolloutLines } from './rollout-lines.ts'
import {
  type AttemptEnd,
  type JournalEntry,
  type NodeEntry,
  type RolloutEnd,
  sessionAttempt,
  type SessionEnd,
  type SessionStart,
  type TaskEntry,
  wholeSession,
} from './journal.ts'
import type { RetryFailed } from './store-writer.ts'
import { runFiles } from '../run/run-folder.ts'

/** Puts entries into the database and finished rollouts into their file, one transaction at a time. */
export class JournalWriter {
  readonly #database: DatabaseSync
  readonly #blobs: BlobStore
  readonly #lines: RolloutLines
  readonly #statements: ReturnType<typeof prepareAll>
  #position: number
  #hasFailed = false

  private constructor(database: DatabaseSync, blobs: BlobStore, lines: RolloutLines) {
    this.#database = database
    this.#blobs = blobs
    this.#lines = lines
    this.#statements = prepareAll(database)
    this.#position = this.#lastPosition()
  }

  /** Opens the database and heals the file of lines, which may take a while on a large run. */
  static open(folder: string): JournalWriter {
    const blobs = new BlobStore(join(folder, runFiles.blobs))
    using opened = new DisposableStack()
    const database = opened.adopt(openForWriting(folder), (each) => each.close())
    const path = join(folder, runFiles.lines)
    const lines = opened.adopt(RolloutLines.open({ database, blobs, path }), (each) => each.close())
    const writer = new JournalWriter(database, blobs, lines)
    // From here on the writer owns them.
    opened.move()
    return writer
  }

  begin(): void {
    this.#statements.begin.run()
  }

  apply(entry: JournalEntry): void {
    switch (entry.kind) {
      case 'task':
        this.#task(entry)
        return
      case 'attempt-start':
        this.#statements.attemptStart.run(
          entry.rollout,
          entry.attempt,
          entry.parent,
          entry.task,
          entry.sample,
          entry.at,
        )
        return
      case 'node':
        this.#node(entry)
        return
      case 'event': {
        const { rollout, attempt, name, at, data } = entry
        this.#statements.event.run(rollout, attempt, name, at, this.#blobs.keepText(data))
        return
      }
      case 'attempt-end':
        this.#attemptEnd(entry)
        return
      case 'rollout-end':
        this.#rolloutEnd(entry)
        return
      case 'session-start':
        this.#sessionStart(entry)
        return
      case 'session-end':
        this.#sessionEnd(entry)
        return
      case 'reward':
        this.#statements.reward.run(entry.session, entry.node ?? wholeSession, entry.value, entry.at)
        return
      case 'version':
        this.#statements.version.run(entry.version, entry.rollout, entry.attempt, entry.node)
        return
      case 'delivery': {
        const { delivered, undelivered } = this.#statements
        ;(entry.isDelivered ? delivered : undelivered).run(entry.session, entry.node)
        return
      }
    }
  }

  /** When it returns, everything applied since `begin` is on disk. */
  commit(): void {
    this.#statements.commit.run()
    this.#lines.write()
  }

  /** Never throws: it is called when something already went wrong. */
  rollback(): void {
    this.#hasFailed = true
    try {
      if (this.#database.isTransaction) this.#statements.rollback.run()
      this.#position = this.#lastPosition()
    } catch {
      // SQLite has then rolled back by itself, or can do nothing more.
    }
    this.#lines.rolledBack()
  }

  /** The attempts stay as evidence. With `wholeGroups` the other results of the same tasks wait for their group again. */
  retryFailed({ outcomes, reopened, wholeGroups }: RetryFailed, at: number): number {
    // Numbered, because a statement may use the same values twice.
    const placeholders = (list: readonly Outcome[]): string => list.map((_, index) => `?${index + 1}`).join(', ')
    const failed = `outcome IN (${placeholders(outcomes)})`
    const groups = `task IN (SELECT task FROM rollout WHERE ${failed})`
    const run = (sql: string): number => Number(this.#database.prepare(sql).run(...outcomes).changes)
    this.begin()
    const count = Number(
      this.#database.prepare(`SELECT count(*) AS n FROM rollout WHERE ${failed}`).get(...outcomes)?.['n'],
    )
    const gone = wholeGroups ? groups : failed
    run(
      `UPDATE attempt SET result = NULL, ended_at = gone.ended_at, outcome = gone.outcome, leaf = gone.leaf,
         record = gone.record
       FROM (SELECT * FROM rollout WHERE ${gone}) AS gone
       WHERE gone.id = attempt.rollout AND gone.attempt = attempt.attempt`,
    )
    const discarded = outcomes.filter((outcome) => !reopened.includes(outcome))
    this.#database
      .prepare(
        `UPDATE attempt SET discarded = 1 FROM (SELECT id, attempt FROM rollout WHERE outcome IN (${placeholders(discarded)})) AS failed
         WHERE failed.id = attempt.rollout AND failed.attempt = attempt.attempt`,
      )
      .run(...discarded)
    run(`DELETE FROM rollout WHERE ${gone}`)
    if (count > 0) {
      this.#statements.event.run(null, 0, 'retry-failed', at, JSON.stringify({ outcomes, count }))
      this.#lines.invalidate()
    }
    this.commit()
    if (count > 0) this.#lines.rebuild()
    return count
  }

  /** Brings `rollouts.jsonl` up to date, if it lags the database and can be written. Never throws: the next opening does the rest. */
  catchUpLines(): void {
    try {
      this.#lines.catchUp()
    } catch {
      try {
        // The log may take up the room that the lines need.
        this.#database.exec('PRAGMA busy_timeout = 0; PRAGMA wal_checkpoint(TRUNCATE)')
        this.#lines.catchUp()
      } catch {
        // There is still no room.
      }
    }
  }

  close(): void {
    try {
      this.#lines.sync()
      // A failed writer has already waited for whoever holds the database, and does not wait again.
      if (!this.#hasFailed) this.#database.exec('PRAGMA wal_checkpoint(TRUNCATE)')
    } catch {
      // Committed transactions are in the log, and the next opening finds them there.
    } finally {
      this.#lines.close()
      this.#database.close()
    }
  }

  #lastPosition(): number {
    return Number(this.#statements.lastPosition.get()?.['position'] ?? 0)
  }

  #task({ index, id, digest, row }: TaskEntry): void {
    this.#statements.task.run(index, id, digest)
    if (row !== undefined) this.#statements.taskRow.run(digest, this.#blobs.keepText(row))
  }

  #node(entry: NodeEntry): void {
    const blobs = this.#blobs
    this.#statements.node.run(
      entry.rollout,
      entry.attempt,
      entry.seq,
      entry.parent,
      entry.hash,
      entry.sampled ? 1 : 0,
      entry.at,
      entry.version ?? null,
      entry.meta,
      blobs.keepText(entry.message),
      blobs.keepTokens(entry.promptIds),
      blobs.keepTokens(entry.ids),
      blobs.keepTokens(entry.logprobs),
      blobs.keepTokens(entry.routedExperts),
    )
  }

  #attemptEnd({ rollout, attempt, at, outcome, isHeld, record, leaf }: AttemptEnd): void {
    const kept = this.#blobs.keepText(record)
    const { changes } = this.#statements.attemptEnd.run(at, outcome, isHeld ? 0 : 1, leaf, kept, rollout, attempt)
    // An attempt that never started is the caller's mistake, but nothing that was handed over is dropped.
    if (changes === 0) this.#statements.event.run(rollout, attempt, 'attempt-unknown', at, kept)
  }

  #rolloutEnd(entry: RolloutEnd): void {
    const { rollout, attempt, task, sample, at, outcome, reward, record, leaf, messages } = entry
    const kept = this.#blobs.keepText(record)
    const { changes } = this.#statements.accept.run(this.#position + 1, rollout, attempt)
    if (changes === 0) {
      const isKnown = this.#statements.knows.get(rollout, attempt) !== undefined
      this.#statements.event.run(rollout, attempt, isKnown ? 'duplicate-result' : 'attempt-unknown', at, kept)
      return
    }
    this.#position += 1
    this.#lines.add(rolloutLine(record, messages), this.#position)
    this.#statements.rolloutEnd.run(
      this.#position,
      rollout,
      task,
      sample,
      attempt,
      outcome,
      reward,
      leaf,
      at,
      this.#lines.length,
      kept,
    )
  }

  #sessionStart({ session, group, tenant, keyDigest, at, data }: SessionStart): void {
    const kept = this.#blobs.keepText(data)
    const { changes } = this.#statements.sessionStart.run(session, group, tenant, keyDigest, at, kept)
    // The first session of this id stands: its key is in use, and its messages are under this id.
    if (changes === 0) this.#statements.event.run(session, 0, 'duplicate-session', at, kept)
  }

  #sessionEnd({ session, at, why }: SessionEnd): void {
    const { changes } = this.#statements.sessionEnd.run(at, why, session)
    if (changes > 0) return
    const isKnown = this.#statements.knowsSession.get(session) !== undefined
    const name = isKnown ? 'duplicate-session-end' : 'session-unknown'
    this.#statements.event.run(session, 0, name, at, JSON.stringify({ why }))
  }
}

const ofSession = `WHERE rollout = ? AND attempt = ${sessionAttempt} AND seq = ?`

function prepareAll(database: DatabaseSync) {
  const prepare = (sql: string): StatementSync => database.prepare(sql)
  return {
    begin: prepare('BEGIN IMMEDIATE'),
    commit: prepare('COMMIT'),
    rollback: prepare('ROLLBACK'),
    task: prepare('INSERT OR REPLACE INTO task (number, id, digest) VALUES (?, ?, ?)'),
    taskRow: prepare('INSERT INTO task_row (digest, row) VALUES (?, ?) ON CONFLICT (digest) DO NOTHING'),
    // A resumed attempt may announce itself again: the first start stands.
    attemptStart: prepare(
      `INSERT INTO attempt (rollout, attempt, parent, task, sample, started_at) VALUES (?, ?, ?, ?, ?, ?)
       ON CONFLICT (rollout, attempt) DO NOTHING`,
    ),
    attemptEnd: prepare(
      `UPDATE attempt SET ended_at = ?, outcome = ?, discarded = ?, leaf = ?, record = ?
       WHERE rollout = ? AND attempt = ?`,
    ),
    node: prepare(
      `INSERT INTO node (rollout, attempt, seq, parent, hash, sampled, at, version, meta,
                         message, prompt_ids, ids, logprobs, routed_experts)
       VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
    ),
    event: prepare('INSERT INTO event (rollout, attempt, name, at, data) VALUES (?, ?, ?, ?, ?)'),
    lastPosition: prepare('SELECT max(position) AS position FROM rollout'),
    // The first result stands.
    accept: prepare(
      `UPDATE attempt SET result = ?1 WHERE rollout = ?2 AND attempt = ?3 AND NOT EXISTS
         (SELECT 1 FROM attempt AS other WHERE other.rollout = ?2 AND other.result IS NOT NULL)`,
    ),
    knows: prepare('SELECT 1 FROM attempt WHERE rollout = ? AND attempt = ?'),
    rolloutEnd: prepare(
      `INSERT INTO rollout (position, id, task, sample, attempt, outcome, reward, leaf, ended_at, lines_length, record)
       VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
    ),
    sessionStart: prepare(
      `INSERT INTO session (id, group_id, tenant, key_digest, started_at, data) VALUES (?, ?, ?, ?, ?, ?)
       ON CONFLICT (id) DO NOTHING`,
    ),
    sessionEnd: prepare(
      `UPDATE session SET ended_at = ?, end_reason = ?, last_node = (SELECT max(position) FROM node)
       WHERE id = ? AND ended_at IS NULL`,
    ),
    knowsSession: prepare('SELECT 1 FROM session WHERE id = ?'),
    delivered: prepare(`UPDATE node SET meta = json_remove(meta, '$.undelivered') ${ofSession}`),
    undelivered: prepare(`UPDATE node SET meta = json_set(meta, '$.undelivered', json('true')) ${ofSession}`),
    version: prepare('UPDATE node SET version = ? WHERE rollout = ? AND attempt = ? AND seq = ?'),
    reward: prepare('INSERT OR REPLACE INTO reward (session, node, value, at) VALUES (?, ?, ?, ?)'),
  }
}
