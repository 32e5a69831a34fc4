import { setImmediate as nextTurn } from 'node:timers/promises'

/** So long may it go on before the event loop has its turn. */
const sliceMs = 5

/** A stretch of work on the event loop. */
export class Slice {
  #startedAt = performance.now()

  get isOver(): boolean {
    return performance.now() - this.#startedAt >= sliceMs
  }

  /** The same items, with a rest between them whenever it is time. */
  async *over<Item>(items: Iterable<Item>): AsyncGenerator<Item, void, void> {
    for (const item of items) {
      yield item
      if (this.isOver) await this.rest()
    }
  }

  async rest(): Promise<void> {
    await nextTurn()
    this.#startedAt = performance.now()
  }
}
