/**
 * How long a worker has been silent. Counted in ticks of the supervisor's own clock, so that a supervisor that was itself
 * held up does not take its workers for dead.
 */
export class Silence {
  readonly #afterMs: number
  #ms = 0

  constructor(afterMs: number) {
    this.#afterMs = afterMs
  }

  get ms(): number {
    return this.#ms
  }

  get isLong(): boolean {
    return this.#ms >= this.#afterMs
  }

  /** Adds to the silence. True if it has just become long. */
  tick(elapsedMs: number): boolean {
    const wasLong = this.isLong
    this.#ms += elapsedMs
    return !wasLong && this.isLong
  }

  /** Ends the silence. True if it was long. */
  end(): boolean {
    const wasLong = this.isLong
    this.#ms = 0
    return wasLong
  }
}
