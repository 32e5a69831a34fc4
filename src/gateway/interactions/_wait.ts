import { askedDelayMs } from '../../inference/index.ts'
import { timerMs } from '../../kit/index.ts'
import type { MillraceError } from '../../errors/index.ts'

/** How long requests may wait for a backend. One object for all requests. */
export interface WaitRules {
  readonly maxWaitMs: number
  /** How often a client whose stream has no events yet gets a sign of life. */
  readonly beatMs: number
  /** Why no request may wait any longer, once that is so. */
  end: MillraceError | undefined
}

/** The waiting time of one request, added up. A timer runs while the request waits, and none while it is on the wire. */
export class Wait {
  readonly #onOver: (leftMs: number) => void
  #timer: NodeJS.Timeout | undefined
  #since = 0
  #leftMs: number
  /** When the backend that refused the request last wants it again. */
  #mayComeAgainAt = 0
  #lastFailure: unknown

  /** `onOver` gets what is left of the delay that a backend asked for. */
  constructor(maxMs: number, onOver: (leftMs: number) => void) {
    this.#leftMs = maxMs
    this.#onOver = onOver
  }

  /** The last failure, while the request waits; undefined while it is on the wire. */
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

  /** A backend refused the request. */
  refused(error: unknown): void {
    this.#lastFailure = error
    const askedMs = askedDelayMs(error)
    if (askedMs !== undefined) this.#mayComeAgainAt = performance.now() + askedMs
  }

  /** The request waits for a backend whose last failure is known. */
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
