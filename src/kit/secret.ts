import { hash, timingSafeEqual } from 'node:crypto'

/** What somebody must know. Two are compared in a time that says nothing about how much of one was right. */
export class Secret {
  /** Equal lengths, whatever the text's. */
  readonly #digest: Buffer

  constructor(text: string) {
    this.#digest = hash('sha256', text, 'buffer')
  }

  equals(other: Secret): boolean {
    return timingSafeEqual(this.#digest, other.#digest)
  }
}
