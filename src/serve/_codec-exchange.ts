import { MillraceError } from '../errors/index.ts'
import { maxUnderWay } from './codec-messages.ts'

/** Holds one job of a codec thread to the pace at which its output is taken. */
export class CodecExchange {
  #credits = maxUnderWay
  #isCancelled = false
  #resume: (() => void) | undefined

  credit(): void {
    this.#credits += 1
    this.#resume?.()
  }

  /** Nobody waits for it any more. */
  cancel(): void {
    this.#isCancelled = true
    this.#resume?.()
  }

  /** Resolves when something more may be sent. */
  async room(): Promise<void> {
    while (this.#credits === 0 && !this.#isCancelled) {
      await new Promise<void>((resolve) => {
        this.#resume = resolve
      })
    }
    if (this.#isCancelled) throw new MillraceError('cancelled', 'nobody waits for this reply any more')
    this.#credits -= 1
  }
}
