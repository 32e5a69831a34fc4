import { AbortScope, offAbort, onAbort, withAbort } from '../../../kit/index.ts'

/**
 * Work that several callers wait for. A caller that leaves does not stop it for the others; when the last one leaves, it is
 * stopped, and that caller waits until it has cleaned up, so that nothing is left when the rejection arrives. If a caller has
 * asked to keep it, it goes on to its end.
 */
export class SingleFlight<T> {
  readonly #scope: AbortScope
  readonly #work: Promise<T>
  /** Callers that have not left. */
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

  async settled(): Promise<void> {
    try {
      await this.#work
    } catch {
      // The callers that joined are told.
    }
  }

  async join(signal?: AbortSignal): Promise<T> {
    this.#waiting += 1
    if (!signal) return await this.#work
    // At once: a connection that opens in the same moment must see that nobody waits for it.
    const leave = { handleEvent: () => this.#leave(signal.reason) }
    if (signal.aborted) leave.handleEvent()
    else onAbort(signal, leave)
    try {
      return await withAbort(this.#work, signal)
    } catch (error) {
      if (this.isAbandoned) await this.settled()
      throw error
    } finally {
      offAbort(signal, leave)
    }
  }

  #leave(reason: unknown): void {
    this.#waiting -= 1
    if (this.#waiting === 0 && !this.#isKept) this.#scope.abort(reason)
  }

  /** Waits for the work, which will be needed again and goes on even if this caller leaves. */
  keep(signal: AbortSignal): Promise<T> {
    this.#isKept = true
    return withAbort(this.#work, signal)
  }
}
