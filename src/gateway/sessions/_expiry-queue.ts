import { timerMs } from '../../kit/index.ts'

/** An item that ends by itself unless it is used. */
export interface Expiring {
  /** When the item ends, on the clock of `performance.now()`; using it may move this to a later time. */
  readonly expiresAt: number
}

/** How many items expire in one go: ten thousand sessions that ended together held up every stream for half a second. */
const maxAtOnce = 64

interface Entry<Item> {
  readonly item: Item
  /** The item's `expiresAt` when it was last looked at. */
  readonly at: number
}

/**
 * Many items that expire, and one timer: a heap by the time that each item had when it was last looked at. Using an item only
 * moves its own `expiresAt`; when the old time comes, the queue finds that and puts the item back. The caller bounds how many
 * there are.
 */
export class ExpiryQueue<Item extends Expiring> implements Disposable {
  readonly #onExpired: (item: Item) => void
  readonly #heap: Entry<Item>[] = []
  /** Items that were removed, but are still in the heap until their time comes. */
  readonly #removed = new Set<Item>()
  #timer: NodeJS.Timeout | undefined
  #timerAt = Number.POSITIVE_INFINITY
  #isDisposed = false

  constructor(onExpired: (item: Item) => void) {
    this.#onExpired = onExpired
  }

  /** Does nothing once the queue is disposed of. */
  add(item: Item): void {
    if (this.#isDisposed) return
    this.#push({ item, at: item.expiresAt })
    this.#schedule()
  }

  remove(item: Item): void {
    this.#removed.add(item)
    if (this.#removed.size > this.#heap.length / 2) this.#sweep()
  }

  [Symbol.dispose](): void {
    this.#isDisposed = true
    clearTimeout(this.#timer)
    this.#heap.length = 0
    this.#removed.clear()
  }

  readonly #onTimer = (): void => {
    this.#timerAt = Number.POSITIVE_INFINITY
    const now = performance.now()
    let expired = 0
    for (let first = this.#heap[0]; first && first.at <= now && expired < maxAtOnce; first = this.#heap[0]) {
      this.#pop()
      const { item } = first
      if (this.#removed.delete(item)) continue
      if (item.expiresAt > now) this.#push({ item, at: item.expiresAt })
      else {
        expired += 1
        this.#onExpired(item)
      }
    }
    this.#schedule()
  }

  #schedule(): void {
    const at = this.#heap[0]?.at ?? Number.POSITIVE_INFINITY
    if (at >= this.#timerAt) return
    clearTimeout(this.#timer)
    this.#timerAt = at
    this.#timer = setTimeout(this.#onTimer, timerMs(Math.ceil(at - performance.now())))
  }

  /** Rebuilds the heap without removed items, once they are half of it, so that it never outgrows its items for long. */
  #sweep(): void {
    const left = this.#heap.filter(({ item }) => !this.#removed.has(item))
    this.#removed.clear()
    this.#heap.length = 0
    for (const entry of left) this.#push(entry)
  }

  #push(entry: Entry<Item>): void {
    const heap = this.#heap
    let at = heap.length
    heap.push(entry)
    while (at > 0) {
      const above = (at - 1) >> 1
      const parent = heap[above] as Entry<Item>
      if (parent.at <= entry.at) break
      heap[at] = parent
      at = above
    }
    heap[at] = entry
  }

  #pop(): void {
    const heap = this.#heap
    const last = heap.pop()
    if (!last || heap.length === 0) return
    let at = 0
    for (;;) {
      let below = 2 * at + 1
      const left = heap[below]
      const right = heap[below + 1]
      if (!left) break
      if (right && right.at < left.at) below += 1
      const child = heap[below] as Entry<Item>
      if (child.at >= last.at) break
      heap[at] = child
      at = below
    }
    heap[at] = last
  }
}
