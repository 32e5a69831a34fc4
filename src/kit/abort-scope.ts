import { MillraceError } from '../errors/index.ts'
import { AbortSource, offAbort, onAbort, type AbortListener } from './abort-source.ts'
import { timerMs } from './timer-ms.ts'

/**
 * A child of an abort signal, with an optional deadline, that leaves nothing behind when it is disposed.
 * `AbortSignal.any([parent, AbortSignal.timeout(ms)])` keeps its timer and its listeners until the timer fires.
 */
export class AbortScope implements Disposable, AbortListener {
  readonly #parent: AbortSignal | undefined
  /** Made when the signal is first asked for: a controller costs more than the rest of the scope, and often it is not needed. */
  #source: AbortSource | undefined
  #timer: NodeJS.Timeout | undefined

  constructor(parent: AbortSignal | undefined, timeoutMs?: number, timeoutReason?: () => unknown) {
    this.#parent = parent
    if (parent?.aborted) {
      this.abort(parent.reason)
      return
    }
    if (parent) onAbort(parent, this)
    if (timeoutMs !== undefined) {
      this.#timer = setTimeout(() => {
        this.abort(timeoutReason ? timeoutReason() : new MillraceError('cancelled', `took longer than ${timeoutMs} ms`))
      }, timerMs(timeoutMs))
    }
  }

  get signal(): AbortSignal {
    return this.#made().signal
  }

  abort(reason: unknown): void {
    this[Symbol.dispose]()
    this.#made().abort(reason)
  }

  /** The parent aborted. */
  handleEvent(): void {
    this.abort(this.#parent?.reason)
  }

  [Symbol.dispose](): void {
    clearTimeout(this.#timer)
    if (this.#parent) offAbort(this.#parent, this)
  }

  #made(): AbortSource {
    return (this.#source ??= new AbortSource())
  }
}
