import { Resource } from './resource.ts'

/**
 * Lets threads that share memory wake each other. Each thread has a counter, and ringing counts it up. A ring that comes
 * while the other thread is busy is heard all the same, because the counter has moved. Several rings may be heard as one;
 * listeners find out themselves what there is to do. A ring takes 12 µs and a message 8, but messages would need a port
 * between every two threads.
 */
export class Doorbell extends Resource {
  readonly #bells: Int32Array
  readonly #own: number
  readonly #listeners = new Set<() => void>()

  /** `own` is the bell that this thread, and no other, answers. */
  constructor(bells: Int32Array, own: number) {
    super()
    this.#bells = bells
    this.#own = own
    void this.#answer()
  }

  /** Calls the listener after each ring, until the returned function is called. */
  onRing(listener: () => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  static ring(bells: Int32Array, place: number): void {
    Atomics.add(bells, place, 1)
    Atomics.notify(bells, place)
  }

  static ringAll(bells: Int32Array): void {
    for (let place = 0; place < bells.length; place += 1) Doorbell.ring(bells, place)
  }

  /** Waits without a timer and without a thread, and does not keep the process alive. */
  async #answer(): Promise<void> {
    let heard = Atomics.load(this.#bells, this.#own)
    while (!this.isClosed) {
      const rung = Atomics.waitAsync(this.#bells, this.#own, heard)
      if (rung.async) await rung.value
      heard = Atomics.load(this.#bells, this.#own)
      if (this.isClosed) return
      for (const listener of this.#listeners) listener()
    }
  }

  protected onClose(): void {
    this.#listeners.clear()
    // Wakes `#answer`, which waits for the next ring.
    Doorbell.ring(this.#bells, this.#own)
  }
}
