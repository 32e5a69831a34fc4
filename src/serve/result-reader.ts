import { RingQueue } from '../kit/index.ts'
import type { RolloutRecord } from '../schema/index.ts'

/** A rollout whose result is durable. `record` is there while it is at hand; otherwise the store has it. */
export interface SettledRollout {
  readonly id: string
  readonly record?: RolloutRecord
}

/** `gone`: whoever wanted the results does not any more. `failed`: it was we who could not hand them over. */
export type Leaving = 'gone' | 'failed'

/** Records that a slow reader may hold in memory; of the others it is told the id, and reads them when it gets there. */
const maxRecordsAtHand = 16

/**
 * The results of one request as one reader takes them, as they end. Never holds up a rollout: what waits is an id. It can
 * be left at any time, also while it waits for the next result.
 */
export class ResultReader implements AsyncIterableIterator<SettledRollout, void, void> {
  /** Those that came before they were asked for; most requests have one result, for which somebody waits. */
  #settled: RingQueue<SettledRollout> | undefined
  readonly #onLeft: (reader: ResultReader, why: Leaving) => void
  #due: number
  #waiting: PromiseWithResolvers<IteratorResult<SettledRollout, void>> | undefined
  #state: { readonly kind: 'open' | 'left' } | { readonly kind: 'failed'; readonly error: unknown } = { kind: 'open' }

  /** `due` results are to come, those in `ended` among them. */
  constructor(due: number, ended: Iterable<string>, onLeft: (reader: ResultReader, why: Leaving) => void) {
    this.#due = due
    this.#onLeft = onLeft
    for (const id of ended) this.#keep({ id })
  }

  push(settled: SettledRollout): void {
    if (this.#state.kind !== 'open') return
    if (this.#waiting) {
      const { resolve } = this.#waiting
      this.#waiting = undefined
      this.#due -= 1
      resolve({ done: false, value: settled })
      return
    }
    const isAtHand = (this.#settled?.size ?? 0) < maxRecordsAtHand
    this.#keep(isAtHand ? settled : { id: settled.id })
  }

  /** No more will come. What has come is still handed out. */
  fail(error: unknown): void {
    if (this.#state.kind !== 'open') return
    this.#state = { kind: 'failed', error }
    this.#waiting?.reject(error)
    this.#waiting = undefined
  }

  next(): Promise<IteratorResult<SettledRollout, void>> {
    if (this.#state.kind === 'left') return Promise.resolve({ done: true, value: undefined })
    if (this.#due === 0) return this.return()
    const settled = this.#settled?.shift()
    if (settled) {
      this.#due -= 1
      return Promise.resolve({ done: false, value: settled })
    }
    if (this.#state.kind === 'failed') return Promise.reject(this.#state.error)
    this.#waiting = Promise.withResolvers()
    return this.#waiting.promise
  }

  /** Leaves, because nobody wants the rest. Whether that cancels what still runs is for the request to say. */
  return(): Promise<IteratorResult<SettledRollout, void>> {
    this.#leave('gone')
    return Promise.resolve({ done: true, value: undefined })
  }

  /** Leaves, though the rest is still wanted: it can be read again. Does nothing once it was left. */
  release(): void {
    this.#leave('failed')
  }

  [Symbol.asyncIterator](): this {
    return this
  }

  #keep(settled: SettledRollout): void {
    this.#settled ??= new RingQueue()
    this.#settled.push(settled)
  }

  #leave(why: Leaving): void {
    if (this.#state.kind === 'left') return
    this.#state = { kind: 'left' }
    this.#waiting?.resolve({ done: true, value: undefined })
    this.#waiting = undefined
    this.#onLeft(this, why)
  }
}
