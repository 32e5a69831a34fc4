const tickMs = 1

/**
 * The most CPU this thread used between two ticks of a 1 ms timer: no turn of its loop took more. Finer than `LoopWatch`,
 * whose 5 ms would add up many short turns of a reply that goes out in hundreds of writes; it costs more, too.
 */
export class TurnWatch {
  readonly #timer: NodeJS.Timeout
  #lastMicros = threadMicros()
  #maxMicros = 0

  constructor() {
    this.#timer = setInterval(() => {
      const micros = threadMicros()
      this.#maxMicros = Math.max(this.#maxMicros, micros - this.#lastMicros)
      this.#lastMicros = micros
    }, tickMs)
  }

  /** In milliseconds; the watch is over. */
  stop(): number {
    clearInterval(this.#timer)
    return this.#maxMicros / 1000
  }
}

function threadMicros(): number {
  const { user, system } = process.threadCpuUsage()
  return user + system
}
