import { nameBlockedFunction, type BlockedTarget } from './blocked-function.ts'

/** What a loop was found to be stuck in. */
export interface FoundBlock {
  /** How long the loop had been silent when it was looked at. */
  readonly lagMs: number
  readonly blockedBy: string
}

export interface BlockedLoopWatchOptions {
  readonly target: BlockedTarget
  /** How long a loop may be silent: longer than the time between two beats, or every beat is late. */
  readonly thresholdMs: number
  readonly onBlocked: (blocked: FoundBlock) => void
}

/**
 * Looks into a loop that has been silent for a while, and reports what runs there: once for each time it is blocked. If
 * nothing can be told, because the loop is in a native call, it looks again as long as the silence lasts.
 */
export class BlockedLoopWatch implements Disposable {
  readonly #options: BlockedLoopWatchOptions
  readonly #timer: NodeJS.Timeout
  #lastBeat = performance.now()
  #look: AbortController | undefined
  #isClosed = false

  constructor(options: BlockedLoopWatchOptions) {
    this.#options = options
    this.#timer = setTimeout(this.#onLate, options.thresholdMs)
    this.#timer.unref()
  }

  /** Called when the loop was heard of. */
  beat(): void {
    if (this.#isClosed) return
    this.#lastBeat = performance.now()
    this.#look?.abort()
    this.#look = undefined
    this.#timer.refresh()
  }

  [Symbol.dispose](): void {
    this.#isClosed = true
    clearTimeout(this.#timer)
    this.#look?.abort()
  }

  readonly #onLate = (): void => {
    const look = new AbortController()
    this.#look = look
    // This loop may have been the late one: then the worker's beats are in the queue, and are heard before the next immediate.
    setImmediate(() => void this.#name(look.signal))
  }

  async #name(signal: AbortSignal): Promise<void> {
    if (signal.aborted) return
    const lagMs = performance.now() - this.#lastBeat
    const blockedBy = await nameBlockedFunction(this.#options.target, signal)
    // The worker was heard of meanwhile: what was named is not what held it up.
    if (signal.aborted) return
    if (blockedBy === undefined) this.#timer.refresh()
    else this.#options.onBlocked({ lagMs, blockedBy })
  }
}
