import { MillraceError } from '../errors/index.ts'
import { maxTimerMs } from './max-timer-ms.ts'

/**
 * A child of an abort signal, with an optional deadline, that leaves nothing behind when it is disposed.
 * `AbortSignal.any([parent, AbortSignal.timeout(ms)])` keeps its timer and its listeners until the timer fires.
 */
export class AbortScope implements Disposable {
  readonly #controller = new AbortController()
  readonly #parent: AbortSignal | undefined
  #timer: NodeJS.Timeout | undefined

  constructor(parent: AbortSignal | undefined, timeoutMs?: number, timeoutReason?: () => unknown) {
    this.#parent = parent
    if (parent?.aborted) {
      this.#controller.abort(parent.reason)
      return
    }
    parent?.addEventListener('abort', this.#onParentAbort)
    if (timeoutMs !== undefined) {
      this.#timer = setTimeout(
        () => {
          this.abort(
            timeoutReason ? timeoutReason() : new MillraceError('cancelled', `took longer than ${timeoutMs} ms`),
          )
        },
        Math.min(timeoutMs, maxTimerMs),
      )
    }
  }

  get signal(): AbortSignal {
    return this.#controller.signal
  }

  abort(reason: unknown): void {
    this[Symbol.dispose]()
    this.#controller.abort(reason)
  }

  readonly #onParentAbort = (): void => this.abort(this.#parent?.reason);

  [Symbol.dispose](): void {
    clearTimeout(this.#timer)
    this.#parent?.removeEventListener('abort', this.#onParentAbort)
  }
}
