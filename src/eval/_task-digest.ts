import { createHash } from 'node:crypto'
import type { TaskItem } from '../env/index.ts'

/** Lines are gathered up to this length, as a call of the hash costs more than the text of one task. */
const maxGathered = 4_096

/** One digest for all tasks of a run, in their order. */
export class TaskDigest {
  readonly #hash = createHash('sha256')
  #gathered = ''

  add({ index, digest }: Pick<TaskItem, 'index' | 'digest'>): void {
    this.#gathered += `${index} ${digest}\n`
    if (this.#gathered.length > maxGathered) this.#hashGathered()
  }

  /** Nothing can be added after this. */
  hex(): string {
    this.#hashGathered()
    return this.#hash.digest('hex')
  }

  #hashGathered(): void {
    this.#hash.update(this.#gathered)
    this.#gathered = ''
  }
}
