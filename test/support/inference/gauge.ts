const inUse = 0
const most = 1
const counted = 2
const down = 3
const blocked = 4

/** Numbers that a test and its threads see at once. */
export class Gauge {
  static readonly bytes = 5 * Int32Array.BYTES_PER_ELEMENT
  readonly #cells: Int32Array

  constructor(memory: SharedArrayBuffer) {
    this.#cells = new Int32Array(memory)
  }

  /** The most that were ever in at the same time. */
  get most(): number {
    return Atomics.load(this.#cells, most)
  }

  forgetMost(): void {
    Atomics.store(this.#cells, most, 0)
  }

  get counted(): number {
    return Atomics.load(this.#cells, counted)
  }

  get isDown(): boolean {
    return Atomics.load(this.#cells, down) === 1
  }

  set isDown(isDown: boolean) {
    Atomics.store(this.#cells, down, isDown ? 1 : 0)
  }

  get isBlocked(): boolean {
    return Atomics.load(this.#cells, blocked) === 1
  }

  enter(): void {
    const now = Atomics.add(this.#cells, inUse, 1) + 1
    for (;;) {
      const seen = Atomics.load(this.#cells, most)
      if (now <= seen || Atomics.compareExchange(this.#cells, most, seen, now) === seen) return
    }
  }

  leave(): void {
    Atomics.sub(this.#cells, inUse, 1)
  }

  count(): void {
    Atomics.add(this.#cells, counted, 1)
  }

  /** Blocks the thread that calls it until another one calls `unblock`. */
  block(): void {
    Atomics.store(this.#cells, blocked, 1)
    Atomics.wait(this.#cells, blocked, 1)
  }

  unblock(): void {
    Atomics.store(this.#cells, blocked, 0)
    Atomics.notify(this.#cells, blocked)
  }
}
