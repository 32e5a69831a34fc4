import { askedDelayMs } from '../../inference/index.ts'
import { timerMs } from '../../kit/index.ts'
import type { MillraceError } from '../../errors/index.ts'

/** How long requests may wait for a backend. One for all of them. */
export interface Patience {
  readonly maxWaitMs: number
  /** How often a client that can see nothing of its stream yet is told that it is on its way. */
  readonly beatMs: number
  /** Why nobody waits any longer, once that is so. */
  end: MillraceError | undefined
}

/** The waiting of one request, added up. There is a timer while it waits, and none while it is on the wire. */
export class Wait {
  readonly #onOver: (leftMs: number) => void
  #timer: NodeJS.Timeout | undefined
  #since = 0
  #leftMs: number
  /** When a backend that refused it said that it would take it. */
  #mayComeAgainAt = 0
  #lastFailure: unknown

  /** `onOver` hears how much of what a backend asked for is still to be waited. */
  constructor(maxMs: number, onOver: (leftMs: number) => void) {
    this.#leftMs = maxMs
    this.#onOver = onOver
  }

  /** What it waits for to pass: the last failure that it heard of. None while it is on the wire. */
  get cause(): unknown {
    return this.isOn ? this.#lastFailure : undefined
  }

  get isOn(): boolean {
    return this.#timer !== undefined
  }

  start(): void {
    this.#since = performance.now()
    this.#timer = setTimeout(this.#over, timerMs(this.#leftMs))
  }

  /** A backend did not take it. */
  refused(error: unknown): void {
    this.#lastFailure = error
    const askedMs = askedDelayMs(error)
    if (askedMs !== undefined) this.#mayComeAgainAt = performance.now() + askedMs
  }

  /** It waits for a backend that failed somebody, with this. */
  parked(error: unknown): void {
    this.#lastFailure = error
  }

  stop(): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
    this.#leftMs -= performance.now() - this.#since
  }

  readonly #over = (): void => this.#onOver(this.#mayComeAgainAt - performance.now())
}
