import { nameBlockedFunction, type BlockedTarget } from './blocked-function.ts'

/** What a loop was stuck in when somebody looked. */
export interface FoundBlock {
  /** How long it had not been heard of when it was looked at. */
  readonly lagMs: number
  readonly blockedBy: string
}

export interface BlockedLoopWatchOptions {
  readonly target: BlockedTarget
  /** More than the worker's beats are apart, or every one of them is late. */
  readonly thresholdMs: number
  readonly onBlocked: (blocked: FoundBlock) => void
}

/**
 * Looks into a loop when it has not been heard of for a while, and says what runs there: once for each time it is blocked.
 * As long as it stays silent and nothing could be told, because it is in a native call, it looks again.
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

  /** The loop was heard of. */
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
    // This loop may have been the late one: then the beats lie in the queue, and are heard before the next immediate.
    setImmediate(() => void this.#name(look.signal))
  }

  async #name(signal: AbortSignal): Promise<void> {
    if (signal.aborted) return
    const lagMs = performance.now() - this.#lastBeat
    const blockedBy = await nameBlockedFunction(this.#options.target, signal)
    // Heard of meanwhile: what was named is not what held it up.
    if (signal.aborted) return
    if (blockedBy === undefined) this.#timer.refresh()
    else this.#options.onBlocked({ lagMs, blockedBy })
  }
}
