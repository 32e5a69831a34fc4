/** Keeps the last `capacity` bytes written to it, at a cost that depends only on the length of what is written. */
export class TailBuffer {
  readonly #capacity: number
  // A ring: once it is full, the oldest byte is at `#at`, where the next one is written.
  #ring: Buffer | undefined
  #at = 0
  #isFull = false

  constructor(capacity: number) {
    this.#capacity = capacity
  }

  push(chunk: Buffer): void {
    this.#ring ??= Buffer.allocUnsafeSlow(this.#capacity)
    if (chunk.length >= this.#capacity) {
      chunk.copy(this.#ring, 0, chunk.length - this.#capacity)
      this.#at = 0
      this.#isFull = true
      return
    }
    const copied = chunk.copy(this.#ring, this.#at)
    const wrapped = chunk.copy(this.#ring, 0, copied)
    const end = this.#at + copied
    this.#isFull ||= end === this.#capacity
    this.#at = end === this.#capacity ? wrapped : end
  }

  /** The kept text. If bytes were dropped, it begins with the first line that is whole. */
  toString(): string {
    if (!this.#ring) return ''
    const newest = this.#ring.subarray(0, this.#at)
    if (!this.#isFull) return newest.toString()
    const kept = Buffer.concat([this.#ring.subarray(this.#at), newest])
    const firstLine = kept.indexOf('\n') + 1
    return kept.subarray(firstLine < kept.length ? firstLine : 0).toString()
  }
}
