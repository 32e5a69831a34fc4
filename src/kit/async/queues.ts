import { AsyncResource } from 'node:async_hooks'
import { channel } from 'node:diagnostics_channel'
import { setImmediate as nextTurn } from 'node:timers/promises'
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
      throw new MillraceError('usage', 'these results are being read already; they can be read once')
    }
    if (this.#reader === 'missed') {
      throw new MillraceError(
        'usage',
        'results that nobody read were dropped after the summary was asked for; start to read them before, or read them from where they are stored',
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

/** Pieces of work in one turn of the loop; it also bounds what follows from them through promises. */
const maxAtOnce = 16
/** No further piece is begun in a turn after so long. */
const maxMs = 4

/**
 * Does work of one kind in batches and in order, at the end of a turn of the loop. Piece after piece takes a tenth to a fifth
 * less CPU than one piece per socket read, and turns stay short: a thousand replies that arrive together would hold up timers
 * for a third of a second. It needs no limit: there is never more work than requests under way.
 */
export class TurnBatches {
  readonly #waiting = new RingQueue<() => void>()
  readonly #now: () => number
  #isDue = false

  constructor(now: () => number = () => performance.now()) {
    this.#now = now
  }

  /** Does the work soon. What it throws is an uncaught exception; the rest of the work is done all the same. */
  add(work: () => void): void {
    // Tracers look in the async context for the request that the work belongs to.
    this.#waiting.push(AsyncResource.bind(work, 'TurnBatches'))
    if (!this.#isDue) this.#schedule()
  }

  #schedule(): void {
    this.#isDue = true
    setImmediate(this.#onTurnEnd)
  }

  readonly #onTurnEnd = (): void => {
    const endsAt = this.#now() + maxMs
    // What this work adds comes in a later turn.
    let left = Math.min(this.#waiting.size, maxAtOnce)
    try {
      do {
        this.#waiting.shift()?.()
        left -= 1
      } while (left > 0 && this.#now() < endsAt)
    } finally {
      this.#isDue = false
      if (this.#waiting.size > 0) this.#schedule()
    }
  }
}

export class TimeSlice {
  readonly #ms: number
  #startedAt = performance.now()

  constructor(ms = 5) {
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

/** A diagnostics channel whose messages have a type. Publishers check `hasSubscribers` before making an event. */
export class EventChannel<Event> {
  readonly #channel

  constructor(name: `millrace:${string}`) {
    this.#channel = channel(name)
  }

  get hasSubscribers(): boolean {
    return this.#channel.hasSubscribers
  }

  publish(event: Event): void {
    this.#channel.publish(event)
  }

  /** Listens until disposed. A listener must not throw: that would end the process. */
  subscribe(listener: (event: Event) => void): Disposable {
    const onMessage = (message: unknown): void => listener(message as Event)
    this.#channel.subscribe(onMessage)
    return { [Symbol.dispose]: () => this.#channel.unsubscribe(onMessage) }
  }
}
