import { MillraceError } from '../errors/index.ts'
import { RingQueue } from './ring-queue.ts'

/**
 * A bounded queue between producers and one reader. `push` resolves when there is room, so a slow reader slows its
 * producers. Leaving the `for await` early, by `break` or by an error, runs `onReaderGone`.
 */
export class AsyncQueue<T> implements AsyncIterable<T> {
  readonly #items = new RingQueue<T>()
  readonly #capacity: number
  readonly #onReaderGone: (() => Promise<void> | void) | undefined
  #roomWaiters: (() => void)[] = []
  #wakeReader: (() => void) | undefined
  #reader: 'awaited' | 'nobody' | 'reading' = 'awaited'
  #state: { kind: 'open' } | { kind: 'ended' } | { kind: 'failed'; error: unknown } = { kind: 'open' }

  constructor(capacity: number, onReaderGone?: () => Promise<void> | void) {
    this.#capacity = capacity
    this.#onReaderGone = onReaderGone
  }

  /** Takes the item at once; the promise is back-pressure: await it before producing more. */
  push(item: T): Promise<void> | undefined {
    if (this.#state.kind !== 'open' || this.#reader === 'nobody') return undefined
    this.#items.push(item)
    this.#wake()
    if (this.#items.size <= this.#capacity) return undefined
    return new Promise((resolve) => this.#roomWaiters.push(resolve))
  }

  end(): void {
    this.#finish({ kind: 'ended' })
  }

  /** Items already pushed are still delivered; the error comes after them. */
  fail(error: unknown): void {
    this.#finish({ kind: 'failed', error })
  }

  /** Nobody reads: what comes is dropped and holds nobody up, until somebody does start to read. */
  discard(): void {
    if (this.#reader !== 'awaited') return
    this.#reader = 'nobody'
    this.#releaseRoom()
  }

  [Symbol.asyncIterator](): AsyncGenerator<T, void, void> {
    if (this.#reader === 'reading') {
      throw new MillraceError('usage', 'these results are being read already; they can be read once')
    }
    this.#reader = 'reading'
    return this.#read()
  }

  async *#read(): AsyncGenerator<T, void, void> {
    try {
      for (;;) {
        const item = this.#items.shift()
        if (item !== undefined) {
          if (this.#items.size <= this.#capacity) this.#releaseRoom()
          yield item
          continue
        }
        if (this.#state.kind === 'failed') throw this.#state.error
        if (this.#state.kind === 'ended') return
        await new Promise<void>((resolve) => {
          this.#wakeReader = resolve
        })
      }
    } finally {
      this.#finish({ kind: 'ended' })
      await this.#onReaderGone?.()
    }
  }

  #finish(state: { kind: 'ended' } | { kind: 'failed'; error: unknown }): void {
    if (this.#state.kind !== 'open') return
    this.#state = state
    this.#releaseRoom()
    this.#wake()
  }

  #wake(): void {
    const wake = this.#wakeReader
    this.#wakeReader = undefined
    wake?.()
  }

  #releaseRoom(): void {
    const waiters = this.#roomWaiters
    if (waiters.length === 0) return
    this.#roomWaiters = []
    for (const resolve of waiters) resolve()
  }
}
