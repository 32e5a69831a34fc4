import { AbortScope, raced } from '../../../kit/index.ts'

/**
 * Work that several callers wait for. A caller that leaves does not stop it for the others; when the last one leaves, it is
 * stopped, and that caller waits until it has cleaned up, so that nothing is left when the rejection arrives. If a caller has
 * asked to keep it, it goes on to its end.
 */
export class SharedFlight<T> {
  readonly #scope: AbortScope
  readonly #work: Promise<T>
  #waiting = 0
  #isKept = false

  /** `parent` stops the work for everybody. The work begins in a later microtask. */
  constructor(parent: AbortSignal, work: (signal: AbortSignal) => Promise<T>) {
    const scope = new AbortScope(parent)
    this.#scope = scope
    this.#work = Promise.resolve()
      .then(() => work(scope.signal))
      .finally(() => scope[Symbol.dispose]())
    this.#work.catch(() => {})
  }

  /** Whether everybody has left: the work is about to fail and must not be joined. */
  get isAbandoned(): boolean {
    return this.#scope.signal.aborted
  }

  /** Resolves when the work has ended, well or not. */
  async settled(): Promise<void> {
    try {
      await this.#work
    } catch {
      // The callers that joined are told.
    }
  }

  async join(signal?: AbortSignal): Promise<T> {
    this.#waiting += 1
    try {
      return await (signal ? raced(this.#work, signal) : this.#work)
    } catch (error) {
      if (signal?.aborted && this.#waiting === 1 && !this.#isKept) {
        this.#scope.abort(signal.reason)
        await this.settled()
      }
      throw error
    } finally {
      this.#waiting -= 1
    }
  }

  /** Waits for the work, which will be needed again and goes on even if this caller leaves. */
  keep(signal: AbortSignal): Promise<T> {
    this.#isKept = true
    return raced(this.#work, signal)
  }
}
