/** The time from `start` to `stop`, or until now. */
export class Stopwatch {
  #startedAt: number | undefined
  #stoppedAt: number | undefined

  get elapsedMs(): number {
    return this.#startedAt === undefined ? 0 : (this.#stoppedAt ?? performance.now()) - this.#startedAt
  }

  start(): void {
    this.#startedAt = performance.now()
  }

  stop(): void {
    this.#stoppedAt = performance.now()
  }
}
