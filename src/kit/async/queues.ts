import { MillraceError } from '../../errors/index.ts'

type Step<T> = IteratorResult<T, void>

type QueueEnd = { readonly kind: 'ended' } | { readonly kind: 'failed'; readonly error: unknown }

interface QueueReader<T> extends AsyncIterableIterator<T, void, void> {
  return(): Promise<Step<T>>
}

/** A bounded queue between producers and one reader. Leaving the `for await` early runs `onReaderGone`. */
export class AsyncQueue<T> implements AsyncIterable<T> {
  readonly #items = new RingQueue<T>()
  #capacity: number
  readonly #onReaderGone: (() => Promise<void> | void) | undefined
  #roomWaiters: (() => void)[] = []
  /** Calls of `next` that wait for an item: one, unless the reader does not await them. */
  readonly #steps = new RingQueue<(result: Step<T> | Promise<Step<T>>) => void>()
  /** `nobody`: items are dropped, because no reader is expected. `missed`: some have been dropped. */
  #reader: 'awaited' | 'nobody' | 'missed' | 'reading' | 'gone' = 'awaited'
  #state: { readonly kind: 'open' } | QueueEnd = { kind: 'open' }

  constructor(capacity: number, onReaderGone?: () => Promise<void> | void) {
    this.#capacity = capacity
    this.#onReaderGone = onReaderGone
  }

  /** Takes the item at once; the promise is back-pressure: await it before producing more. */
  push(item: T): Promise<void> | undefined {
    if (this.#state.kind !== 'open') return undefined
    if (this.#reader === 'nobody' || this.#reader === 'missed') {
      this.#reader = 'missed'
      return undefined
    }
    const step = this.#steps.shift()
    if (step) {
      step({ done: false, value: item })
      return undefined
    }
    this.#items.push(item)
    if (this.#items.size <= this.#capacity) return undefined
    return new Promise((resolve) => this.#roomWaiters.push(resolve))
  }

  end(): void {
    this.#finish({ kind: 'ended' })
  }

  /** Ends the queue with an error. Items already pushed are still delivered before it. */
  fail(error: unknown): void {
    this.#finish({ kind: 'failed', error })
  }

  get size(): number {
    return this.#items.size
  }

  /** From here on producers do not wait for room: for an owner that expects few more items and must not wait for the reader. */
  unbind(): void {
    this.#capacity = Infinity
    this.#releaseRoom()
  }

  /**
   * Called when somebody waits for the end. If nobody reads, items are dropped from now on. A reader that is busy with an
   * item may be the one that waits: it gets every item, but producers do not wait for it any more.
   */
  awaitEnd(): void {
    if (this.#reader === 'reading' && this.#steps.size === 0) this.unbind()
    if (this.#reader !== 'awaited') return
    this.#reader = 'nobody'
    this.#releaseRoom()
  }

  /** Written by hand, because a generator takes twice as long for an item. */
  [Symbol.asyncIterator](): QueueReader<T> {
    if (this.#reader === 'reading' || this.#reader === 'gone') {
      throw new MillraceError('usage', 'these results are already being read; they can be read only once')
    }
    if (this.#reader === 'missed') {
      throw new MillraceError(
        'usage',
        'unread results were dropped when the summary was requested; start to read them before that, or read them from the run folder',
      )
    }
    this.#reader = 'reading'
    const reader: QueueReader<T> = {
      next: () => this.#next(),
      return: () => this.#leave(),
      [Symbol.asyncIterator]: () => reader,
    }
    return reader
  }

  #next(): Promise<Step<T>> {
    if (this.#reader === 'gone') return this.#leave()
    const item = this.#items.shift()
    if (item !== undefined) {
      if (this.#items.size <= this.#capacity) this.#releaseRoom()
      return Promise.resolve({ done: false, value: item })
    }
    if (this.#state.kind !== 'open') return this.#reachEnd(this.#state)
    return new Promise((resolve) => this.#steps.push(resolve))
  }

  async #reachEnd(state: QueueEnd): Promise<Step<T>> {
    const end = await this.#leave()
    if (state.kind === 'failed') throw state.error
    return end
  }

  /** The reader is done, at the end of the queue or before. `onReaderGone` is called once. */
  async #leave(): Promise<Step<T>> {
    if (this.#reader !== 'gone') {
      this.#reader = 'gone'
      this.#finish({ kind: 'ended' })
      await this.#onReaderGone?.()
    }
    return { done: true, value: undefined }
  }

  #finish(state: QueueEnd): void {
    if (this.#state.kind !== 'open') return
    this.#state = state
    this.#releaseRoom()
    for (let step = this.#steps.shift(); step; step = this.#steps.shift()) step(this.#next())
  }

  #releaseRoom(): void {
    const waiters = this.#roomWaiters
    if (waiters.length === 0) return
    this.#roomWaiters = []
    for (const resolve of waiters) resolve()
  }
}

/** A first-in first-out queue over one array whose size is a power of two. It has no bound; its owner names the limit. */
export class RingQueue<T> {
  #slots: (T | undefined)[] = Array.from({ length: 16 })
  #head = 0
  #size = 0

  get size(): number {
    return this.#size
  }

  push(item: T): void {
    if (this.#size === this.#slots.length) this.#grow()
    this.#slots[(this.#head + this.#size) & (this.#slots.length - 1)] = item
    this.#size += 1
  }

  shift(): T | undefined {
    if (this.#size === 0) return undefined
    const item = this.#slots[this.#head]
    this.#slots[this.#head] = undefined
    this.#head = (this.#head + 1) & (this.#slots.length - 1)
    this.#size -= 1
    return item
  }

  #grow(): void {
    const { length } = this.#slots
    const bigger: (T | undefined)[] = Array.from({ length: length * 2 })
    for (let index = 0; index < length; index += 1) bigger[index] = this.#slots[(this.#head + index) & (length - 1)]
    this.#slots = bigger
    this.#head = 0
  }
}

/** The items of a source, with the first one read already: a broken source shows before anything depends on it. */
export async function peekFirst<T>(source: AsyncIterable<T>): Promise<AsyncIterable<T> & AsyncDisposable> {
  const iterator = source[Symbol.asyncIterator]()
  const first = await iterator.next()
  const items = async function* (): AsyncGenerator<T, void, void> {
    try {
      for (let next = first; !next.done; next = await iterator.next()) yield next.value
    } finally {
      await iterator.return?.()
    }
  }
  return {
    [Symbol.asyncIterator]: items,
    [Symbol.asyncDispose]: async () => void (await iterator.return?.()),
  }
}
