import { MillraceError } from '../errors/index.ts'

/**
 * A holder of a socket, a thread, a file or a timer. `close` runs once, however often it is called; all callers await the
 * same end. `closedSignal` aborts first, so work in progress can stop before its parts are gone.
 */
export abstract class Resource implements AsyncDisposable {
  readonly #controller = new AbortController()
  #closing: Promise<void> | undefined

  get isClosed(): boolean {
    return this.#closing !== undefined
  }

  get closedSignal(): AbortSignal {
    return this.#controller.signal
  }

  close(reason?: unknown): Promise<void> {
    if (this.#closing) return this.#closing
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    this.#closing = promise
    this.#controller.abort(reason ?? new MillraceError('closed', `${this.constructor.name} is closed`))
    Promise.try(() => this.onClose()).then(resolve, reject)
    return promise
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  protected throwIfClosed(): void {
    if (this.isClosed) throw this.#controller.signal.reason
  }

  /** Releases everything. Called once; must not assume that starting had finished. */
  protected abstract onClose(): Promise<void> | void
}
