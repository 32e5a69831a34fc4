const lineFeed = 0x0a

/**
 * Cuts a stream of bytes into lines. A character may lie across two chunks, so bytes are held back, never text. A line over
 * the limit comes out as `undefined`, so that the count of lines stays right.
 */
export class LineSplitter {
  readonly #maxLineBytes: number
  #partial: Buffer[] = []
  #partialBytes = 0
  #isSkipping = false

  constructor(maxLineBytes: number) {
    this.#maxLineBytes = maxLineBytes
  }

  /** Whether the unfinished line is over the limit already, for callers that will not wait for its end. */
  get isSkipping(): boolean {
    return this.#isSkipping
  }

  /** The lines that end in this chunk, without their line feed. */
  push(chunk: Buffer): (string | undefined)[] {
    const lines: (string | undefined)[] = []
    let start = 0
    for (let end = chunk.indexOf(lineFeed); end !== -1; end = chunk.indexOf(lineFeed, start)) {
      if (this.#isSkipping || this.#partialBytes > 0) {
        this.#hold(chunk.subarray(start, end))
        lines.push(this.#release())
      } else {
        lines.push(end - start > this.#maxLineBytes ? undefined : chunk.toString('utf8', start, end))
      }
      start = end + 1
    }
    if (start < chunk.length) this.#hold(chunk.subarray(start))
    return lines
  }

  /** The text after the last line feed, if there is any. */
  end(): (string | undefined)[] {
    return this.#isSkipping || this.#partialBytes > 0 ? [this.#release()] : []
  }

  #hold(bytes: Buffer): void {
    this.#partialBytes += bytes.length
    if (this.#partialBytes > this.#maxLineBytes) {
      this.#isSkipping = true
      this.#partial = []
    }
    if (!this.#isSkipping) this.#partial.push(bytes)
  }

  #release(): string | undefined {
    const line = this.#isSkipping ? undefined : Buffer.concat(this.#partial, this.#partialBytes).toString('utf8')
    this.#partial = []
    this.#partialBytes = 0
    this.#isSkipping = false
    return line
  }
}
