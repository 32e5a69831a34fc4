/**
 * How much text all sessions together may keep to be fast. At the limit others are asked to give some back; if none does, the
 * text is not kept, which costs time only.
 */
export class TextAllowance {
  readonly #total: number
  readonly #reclaim: () => boolean
  #left: number

  /** `reclaim` makes some session give back text, and says whether one did. */
  constructor(chars: number, reclaim: () => boolean) {
    this.#total = chars
    this.#left = chars
    this.#reclaim = reclaim
  }

  take(chars: number): boolean {
    if (chars > this.#total) return false
    while (chars > this.#left) if (!this.#reclaim()) return false
    this.#left -= chars
    return true
  }

  giveBack(chars: number): void {
    this.#left += chars
  }
}
