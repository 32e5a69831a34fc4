import { setImmediate as nextTurn } from 'node:timers/promises'

/** Long enough that a turn of the loop costs little beside it, and too short for others to notice. */
const defaultMs = 5

/** A stretch of work on the event loop, which gives the others their turn when it has lasted long enough. */
export class TimeSlice {
  readonly #ms: number
  #startedAt = performance.now()

  constructor(ms = defaultMs) {
    this.#ms = ms
  }

  get isOver(): boolean {
    return performance.now() - this.#startedAt >= this.#ms
  }

  /** The same items, with a rest between them whenever it is time: for a long list that is read without waiting. */
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
