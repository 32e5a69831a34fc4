import type { DatabaseSync, StatementSync } from 'node:sqlite'
import type { MillraceError } from '../errors/index.ts'
import { damagedRecord, isCorrupt } from './damage.ts'
import { pages } from './_pages.ts'
import type { EndedRow, FactRow, RolloutRow } from './_run-rows.ts'

const facts = 'position, id, task, sample, attempt, outcome, reward, leaf, ended_at'
const after = 'FROM rollout WHERE position > ? ORDER BY position LIMIT ?'

/** The rows of results, a page at a time. A record on a damaged page of the database costs only its own result. */
export class EndedRows {
  readonly #page: StatementSync
  readonly #factPage: StatementSync
  readonly #record: StatementSync

  constructor(database: DatabaseSync) {
    this.#page = database.prepare(`SELECT ${facts}, record ${after}`)
    this.#factPage = database.prepare(`SELECT ${facts} ${after}`)
    this.#record = database.prepare('SELECT record FROM rollout WHERE position = ?')
  }

  /** The rows after a position in the order they were accepted, also those accepted during the iteration. */
  each(position = -1): Generator<EndedRow, void, void> {
    return pages<EndedRow>((last, count) => this.#after(last?.position ?? position, count))
  }

  #after(position: number, count: number): EndedRow[] {
    try {
      return this.#page.all(position, count) as RolloutRow[]
    } catch (error) {
      if (!isCorrupt(error)) throw error
      // Each record is read alone, which shows which one is damaged.
      const rows = this.#factPage.all(position, count) as FactRow[]
      return rows.map((row) => Object.assign(row, { record: this.#recordOf(row) }))
    }
  }

  #recordOf({ id, position }: FactRow): string | MillraceError {
    try {
      const row = this.#record.get(position) as { record: string } | undefined
      return row?.record ?? damagedRecord(id, undefined)
    } catch (error) {
      if (!isCorrupt(error)) throw error
      return damagedRecord(id, error)
    }
  }
}
