import { MillraceError } from '../errors/index.ts'
import { maxUnderWay } from './codec-messages.ts'

/** What goes to and fro for one job of a codec thread: the parts of a body in, and out only as fast as it is taken. */
export class CodecExchange {
  readonly #parts: Uint8Array[] = []
  readonly #complete = Promise.withResolvers<Uint8Array>()
  #credits = maxUnderWay
  #isCancelled = false
  #resume: (() => void) | undefined

  constructor() {
    // A job without a body never asks for it.
    this.#complete.promise.catch(() => {})
  }

  /** Resolves with the whole body once its end has come. */
  body(): Promise<Uint8Array> {
    return this.#complete.promise
  }

  add(bytes: Uint8Array | null): void {
    if (bytes) this.#parts.push(bytes)
    else this.#complete.resolve(Buffer.concat(this.#parts.splice(0)))
  }

  credit(): void {
    this.#credits += 1
    this.#resume?.()
  }

  /** Nobody waits for it any more. */
  cancel(): void {
    this.#isCancelled = true
    this.#parts.length = 0
    this.#complete.reject(cancelled())
    this.#resume?.()
  }

  /** Resolves when something more may be sent. */
  async room(): Promise<void> {
    while (this.#credits === 0 && !this.#isCancelled) {
      await new Promise<void>((resolve) => {
        this.#resume = resolve
      })
    }
    if (this.#isCancelled) throw cancelled()
    this.#credits -= 1
  }
}

function cancelled(): MillraceError {
  return new MillraceError('cancelled', 'nobody waits for this reply any more')
}
