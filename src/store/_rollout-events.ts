import type { DatabaseSync, StatementSync } from 'node:sqlite'

/**
 * Finds the events of one attempt. The journal has no index for that, which would cost every writer a page, so a reader that asks
 * makes one for itself: in a temporary table, which SQLite moves to a file where it is large, and which each question brings up
 * to date.
 */
export class RolloutEvents {
  readonly #last: StatementSync
  readonly #update: StatementSync
  readonly #find: StatementSync
  #upTo = -1

  constructor(database: DatabaseSync) {
    database.exec(`
      CREATE TEMP TABLE rollout_event (
        rollout TEXT NOT NULL,
        attempt INTEGER NOT NULL,
        name TEXT NOT NULL,
        position INTEGER NOT NULL,
        PRIMARY KEY (rollout, attempt, name, position)
      ) WITHOUT ROWID`)
    this.#last = database.prepare('SELECT max(position) AS position FROM event')
    this.#update = database.prepare(`
      INSERT INTO rollout_event SELECT rollout, attempt, name, position FROM event
      WHERE position > ? AND position <= ? AND rollout IS NOT NULL`)
    this.#find = database.prepare(`
      SELECT event.* FROM rollout_event JOIN event USING (position)
      WHERE rollout_event.rollout = ? AND rollout_event.attempt = ? AND rollout_event.name = ?
      ORDER BY position`)
  }

  /** The rows in the order they were recorded. */
  rows(rollout: string, attempt: number, name: string): Record<string, unknown>[] {
    const last = Number(this.#last.get()?.['position'] ?? -1)
    if (last > this.#upTo) this.#update.run(this.#upTo, last)
    this.#upTo = last
    return this.#find.all(rollout, attempt, name)
  }
}
