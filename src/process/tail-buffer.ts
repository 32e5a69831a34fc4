/** Keeps the last `capacity` bytes written to it. */
export class TailBuffer {
  readonly #capacity: number
  #tail = Buffer.alloc(0)
  #hasDropped = false

  constructor(capacity: number) {
    this.#capacity = capacity
  }

  push(chunk: Buffer): void {
    const joined = Buffer.concat([this.#tail, chunk])
    this.#hasDropped ||= joined.length > this.#capacity
    // A copy, so that a long chunk is not kept for its end.
    this.#tail = Buffer.from(joined.subarray(-this.#capacity))
  }

  /** The kept text. If bytes were dropped, it begins with the first line that is whole. */
  toString(): string {
    const firstLine = this.#hasDropped ? this.#tail.indexOf('\n') + 1 : 0
    return this.#tail.toString('utf8', firstLine < this.#tail.length ? firstLine : 0)
  }
}
