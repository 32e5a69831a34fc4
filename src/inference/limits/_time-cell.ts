const microsecondsPerMs = 1000

// `performance.now` counts from the start of its own thread; this is that start on the machine's monotonic clock.
const startOfThreadMs = Number(process.hrtime.bigint()) / 1e6 - performance.now()

/** Milliseconds on a clock that all threads of the machine read alike and nobody can set. */
export function machineNow(): number {
  return startOfThreadMs + performance.now()
}

/**
 * A time that several workers may change. Only whole numbers can be compared and swapped, so in shared memory it is kept in
 * microseconds; in memory that is not shared it is an ordinary number, which takes a few nanoseconds instead of a hundred.
 */
export class TimeCell {
  readonly #shared: BigInt64Array | undefined
  readonly #own: Float64Array

  constructor(cell: BigInt64Array) {
    if (cell.buffer instanceof SharedArrayBuffer) this.#shared = cell
    this.#own = new Float64Array(cell.buffer, cell.byteOffset, 1)
  }

  get ms(): number {
    return this.#shared ? Number(Atomics.load(this.#shared, 0)) / microsecondsPerMs : (this.#own[0] as number)
  }

  set ms(ms: number) {
    if (this.#shared) Atomics.store(this.#shared, 0, toMicroseconds(ms))
    else this.#own[0] = ms
  }

  /** Sets the time to `to` if it is still `from`, as `ms` gave it. False if another worker was faster. */
  swap(from: number, to: number): boolean {
    if (this.#shared) {
      const expected = toMicroseconds(from)
      return Atomics.compareExchange(this.#shared, 0, expected, toMicroseconds(to)) === expected
    }
    this.#own[0] = to
    return true
  }
}

function toMicroseconds(ms: number): bigint {
  return BigInt(Math.round(ms * microsecondsPerMs))
}
