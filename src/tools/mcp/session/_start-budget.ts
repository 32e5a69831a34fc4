import { MillraceError } from '../../../errors/index.ts'
import { backoffMs, raced, sleep, type Backoff } from '../../../kit/index.ts'
import { serverDefaults } from '../config/server-defaults.ts'

export interface StartBudgetOptions {
  /** How many tries may follow a first failure, in any `windowMs`. */
  readonly max: number
  readonly windowMs: number
}

const pauses: Backoff = { firstMs: 200, maxMs: 5_000, factor: 3 }

/**
 * How often a server that does not start is tried. As long as starts go well, every caller may start it. Once a start failed, one
 * caller tries again after a pause and the others wait for its result; after too many failures within the window, callers get the
 * last error at once. Otherwise 1,000 rollouts would start a broken server 1,000 times, each waiting for it to time out.
 *
 * It counts starts that failed, over all sessions of the server, until one goes well. A `ReconnectBudget` counts how often one
 * session that had been open was opened again, well or not. Both have the limits of `reconnect`, and neither can replace the
 * other: every process of a pool is a first start, and a server that crashes in each call starts well each time.
 */
export class StartBudget {
  readonly #options: StartBudgetOptions
  /** When the last tries failed, oldest first: at most `max + 1`. Empty as soon as one went well. */
  #failedAt: number[] = []
  #lastFailure: MillraceError | undefined
  /** The result of the one try that the others wait for; undefined if it was given up. */
  #trial: Promise<MillraceError | undefined> | undefined

  constructor(options: StartBudgetOptions = serverDefaults.reconnect) {
    this.#options = options
  }

  /** Whether the next caller would get the last failure without a try. */
  get isSpent(): boolean {
    const oldest = this.#failedAt[0]
    if (oldest === undefined || this.#failedAt.length <= this.#options.max) return false
    return performance.now() - oldest < this.#options.windowMs
  }

  async start<T>(open: () => Promise<T>, signal: AbortSignal): Promise<T> {
    for (;;) {
      if (!this.#lastFailure) return await this.#counted(open, signal)
      if (!this.#trial) return await this.#try(open, signal, this.#lastFailure)
      const failure = await raced(this.#trial, signal)
      if (failure) throw failure
    }
  }

  async #try<T>(open: () => Promise<T>, signal: AbortSignal, last: MillraceError): Promise<T> {
    if (this.isSpent) throw last
    const { promise, resolve } = Promise.withResolvers<MillraceError | undefined>()
    this.#trial = promise
    try {
      await sleep(backoffMs(pauses, this.#failedAt.length), signal)
      return await this.#counted(open, signal)
    } finally {
      this.#trial = undefined
      // After a try that was given up, the callers that waited for it try for themselves.
      resolve(signal.aborted ? undefined : this.#lastFailure)
    }
  }

  async #counted<T>(open: () => Promise<T>, signal: AbortSignal): Promise<T> {
    const startedAt = performance.now()
    try {
      const opened = await open()
      this.#failedAt = []
      this.#lastFailure = undefined
      return opened
    } catch (error) {
      // A caller that left says nothing about the server.
      if (signal.aborted) throw error
      this.#lastFailure = MillraceError.from(error, 'tool_infra')
      // Starts that ran side by side failed for one reason, and count as one.
      if (startedAt >= (this.#failedAt.at(-1) ?? 0)) {
        this.#failedAt.push(performance.now())
        if (this.#failedAt.length > this.#options.max + 1) this.#failedAt.shift()
      }
      throw this.#lastFailure
    }
  }
}
