import { maxTimerMs } from '../../kit/index.ts'
import type { MillraceError } from '../../errors/index.ts'

/** How long requests may wait for a backend. One for all of them. */
export interface Patience {
  readonly maxWaitMs: number
  /** Why nobody waits any longer, once that is so. */
  end: MillraceError | undefined
}

/** The waiting of one request, added up. There is a timer while it waits, and none while it is on the wire. */
export class Wait {
  readonly #onOver: () => void
  #timer: NodeJS.Timeout | undefined
  #since = 0
  #leftMs: number

  constructor(maxMs: number, onOver: () => void) {
    this.#leftMs = maxMs
    this.#onOver = onOver
  }

  get isOn(): boolean {
    return this.#timer !== undefined
  }

  start(): void {
    this.#since = performance.now()
    this.#timer = setTimeout(this.#onOver, Math.min(Math.max(0, this.#leftMs), maxTimerMs))
  }

  stop(): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
    this.#leftMs -= performance.now() - this.#since
  }
}
