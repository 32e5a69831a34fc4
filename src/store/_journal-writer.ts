import { join } from 'node:path'
import type { DatabaseSync, StatementSync } from 'node:sqlite'
import type { Outcome } from '../schema/index.ts'
import { BlobStore } from './_blob-store.ts'
import { openForWriting } from './_open-database.ts'
import { rolloutLine } from './_rollout-line.ts'
import { RolloutLines } from './_rollout-lines.ts'
import type { AttemptEnd, JournalEntry, NodeEntry, RolloutEnd } from './journal-entry.ts'
import type { RetryFailed } from './_writer-protocol.ts'
import { runFiles } from './run-folder.ts'

/** Puts entries into the database and finished rollouts into their file, one transaction at a time. */
export class JournalWriter {
  readonly #database: DatabaseSync
  readonly #blobs: BlobStore
  readonly #lines: RolloutLines
  readonly #statements: ReturnType<typeof prepareAll>
  #newLines: string[] = []

  private constructor(database: DatabaseSync, blobs: BlobStore, lines: RolloutLines) {
    this.#database = database
    this.#blobs = blobs
    this.#lines = lines
    this.#statements = prepareAll(database)
  }

  /** Migrates the database and heals the file of lines; both may take a while on a large run. */
  static open(folder: string): JournalWriter {
    const database = openForWriting(folder)
    try {
      const blobs = new BlobStore(join(folder, runFiles.blobs))
      const lines = RolloutLines.open({ database, blobs, path: join(folder, runFiles.lines) })
      return new JournalWriter(database, blobs, lines)
    } catch (error) {
      database.close()
      throw error
    }
  }

  begin(): void {
    this.#statements.begin.run()
  }

  apply(entry: JournalEntry): void {
    switch (entry.kind) {
      case 'task':
        this.#statements.task.run(entry.index, entry.id, entry.digest)
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
    }
  }

  /** When it returns, everything applied since `begin` is on disk. */
  commit(): void {
    if (this.#newLines.length > 0) this.#lines.append(this.#newLines)
    this.#statements.commit.run()
    this.#newLines = []
    this.#lines.committed()
  }

  /** Never throws: it is called when something already went wrong. */
  rollback(): void {
    this.#newLines = []
    try {
      if (this.#database.isTransaction) this.#statements.rollback.run()
    } catch {
      // SQLite has then rolled back by itself.
    }
    this.#lines.rolledBack()
  }

  /**
   * Takes back accepted results so that their rollouts run again; the attempts stay as evidence. With `wholeGroups` the
   * other results of the same tasks are taken back too, as attempts that ended and wait for their group.
   */
  retryFailed({ outcomes, reopened, wholeGroups }: RetryFailed, at: number): number {
    // Numbered, because a statement may name them twice.
    const marks = (list: readonly Outcome[]): string => list.map((_, index) => `?${index + 1}`).join(', ')
    const failed = `outcome IN (${marks(outcomes)})`
    const groups = `task IN (SELECT task FROM rollout WHERE ${failed})`
    const run = (sql: string): number => Number(this.#database.prepare(sql).run(...outcomes).changes)
    this.begin()
    const count = Number(
      this.#database.prepare(`SELECT count(*) AS n FROM rollout WHERE ${failed}`).get(...outcomes)?.['n'],
    )
    const discarded = outcomes.filter((outcome) => !reopened.includes(outcome))
    this.#database
      .prepare(
        `UPDATE attempt SET discarded = 1, ended_at = failed.ended_at, outcome = failed.outcome, leaf = failed.leaf,
           record = failed.record
         FROM (SELECT * FROM rollout WHERE outcome IN (${marks(discarded)})) AS failed
         WHERE failed.id = attempt.rollout AND failed.attempt = attempt.attempt`,
      )
      .run(...discarded)
    if (wholeGroups) {
      run(
        `UPDATE attempt SET ended_at = held.ended_at, outcome = held.outcome, leaf = held.leaf, record = held.record
         FROM (SELECT * FROM rollout WHERE ${groups}) AS held
         WHERE held.id = attempt.rollout AND held.attempt = attempt.attempt AND NOT held.${failed}`,
      )
    }
    run(`DELETE FROM rollout WHERE ${wholeGroups ? groups : failed}`)
    if (count > 0) {
      this.#lines.invalidate()
      this.#statements.event.run(null, 0, 'retry-failed', at, JSON.stringify({ outcomes, count }))
    }
    this.commit()
    if (count > 0) this.#lines.rebuild()
    return count
  }

  close(): void {
    try {
      this.#lines.sync()
      this.#database.exec('PRAGMA wal_checkpoint(TRUNCATE)')
    } catch {
      // What was committed is in the log, and the next opening finds it there.
    } finally {
      this.#lines.close()
      this.#database.close()
    }
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
    )
  }

  #attemptEnd({ rollout, attempt, at, outcome, isHeld, record, leaf }: AttemptEnd): void {
    const kept = this.#blobs.keepText(record)
    const { changes } = this.#statements.attemptEnd.run(at, outcome, isHeld ? 0 : 1, leaf, kept, rollout, attempt)
    // Not the writer's mistake to make good, but nothing that was handed over is dropped either.
    if (changes === 0) this.#statements.event.run(rollout, attempt, 'attempt-unknown', at, kept)
  }

  #rolloutEnd(entry: RolloutEnd): void {
    const { rollout, attempt, task, sample, at, outcome, reward, record, leaf, messages } = entry
    const kept = this.#blobs.keepText(record)
    const { changes } = this.#statements.rolloutEnd.run(rollout, task, sample, attempt, outcome, reward, leaf, at, kept)
    if (changes === 1) this.#newLines.push(rolloutLine(record, messages))
    else this.#statements.event.run(rollout, attempt, 'duplicate-result', at, kept)
  }
}

function prepareAll(database: DatabaseSync) {
  const prepare = (sql: string): StatementSync => database.prepare(sql)
  return {
    begin: prepare('BEGIN IMMEDIATE'),
    commit: prepare('COMMIT'),
    rollback: prepare('ROLLBACK'),
    task: prepare('INSERT OR REPLACE INTO task (number, id, digest) VALUES (?, ?, ?)'),
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
                         message, prompt_ids, ids, logprobs)
       VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
    ),
    event: prepare('INSERT INTO event (rollout, attempt, name, at, data) VALUES (?, ?, ?, ?, ?)'),
    rolloutEnd: prepare(
      `INSERT INTO rollout (id, task, sample, attempt, outcome, reward, leaf, ended_at, record)
       VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING`,
    ),
  }
}
