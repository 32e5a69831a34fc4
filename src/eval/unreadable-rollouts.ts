import { unlessDamaged, type BareRecord, type StoredRollout } from '../store/index.ts'
import type { Summary } from './summary.ts'

/** How many damaged results are named; all are counted. */
const maxNamed = 20

/** Results whose records are damaged, found while all are read: a damaged one is left out, and the others are used. */
export class UnreadableRollouts {
  readonly #ids: string[] = []
  #count = 0

  get count(): number {
    return this.#count
  }

  /** The record of a result; undefined if it is damaged, which is noted. */
  recordOf(stored: StoredRollout): BareRecord | undefined {
    const record = unlessDamaged(() => stored.record)
    if (!record) this.add(stored.rollout)
    return record
  }

  add(rollout: string): void {
    this.#count += 1
    if (this.#ids.length < maxNamed) this.#ids.push(rollout)
  }

  /** The part of a summary about them; empty if there are none. */
  snapshot(): Pick<Summary, 'unreadable'> {
    return this.#count === 0 ? {} : { unreadable: { rollouts: this.#count, ids: [...this.#ids] } }
  }
}
