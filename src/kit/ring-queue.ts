/**
 * A first-in first-out queue over one array whose size is a power of two: no shifting, no allocation per item. The queue has
 * no bound; its owner names the limit.
 */
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
