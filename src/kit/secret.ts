import { hash, timingSafeEqual } from 'node:crypto'

/** A secret. Two are compared in a time that says nothing about how much of one was right. */
export class Secret {
  /** A digest, so that lengths are equal whatever the text. */
  readonly #digest: Buffer

  constructor(text: string) {
    this.#digest = hash('sha256', text, 'buffer')
  }

  equals(other: Secret): boolean {
    return timingSafeEqual(this.#digest, other.#digest)
  }
}
