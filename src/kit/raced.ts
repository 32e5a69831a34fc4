import { offAbort, onAbort, type AbortListener } from './abort-source.ts'

/**
 * The result of `work`, or the signal's reason as soon as it aborts, whichever is first: for work that may not listen to the
 * signal itself. A later result of such work is dropped.
 */
export function raced<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  if (signal.aborted) {
    work.catch(() => {})
    return Promise.reject(signal.reason)
  }
  const race = new Race<T>(signal)
  // Both ends are handled by hand: `finally` would take two promises more, for as long as the work lasts.
  work.then(
    (result) => race.onResult(result),
    (error: unknown) => race.onFailure(error),
  )
  return race.promise
}

/** A class, because closures over the same few values would cost more. */
class Race<T> implements AbortListener {
  readonly #signal: AbortSignal
  readonly #end = Promise.withResolvers<T>()

  constructor(signal: AbortSignal) {
    this.#signal = signal
    onAbort(signal, this)
  }

  get promise(): Promise<T> {
    return this.#end.promise
  }

  onResult(result: T): void {
    offAbort(this.#signal, this)
    this.#end.resolve(result)
  }

  onFailure(error: unknown): void {
    offAbort(this.#signal, this)
    this.#end.reject(error)
  }

  /** The signal aborted. */
  handleEvent(): void {
    this.onFailure(this.#signal.reason)
  }
}
