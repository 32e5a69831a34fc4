import { isMarkedAsUntransferable } from 'node:worker_threads'

/** A chunk from here on is a read of the socket's own, in memory that nobody else uses. */
const wholeReadBytes = 16 * 1024

/**
 * The body of a whole reply, in the chunks it came in. Nearly every one comes in one. A long one can be given to another
 * thread with the memory it came in: nothing is copied, and what is given away is no garbage to be collected here. Left to
 * the collector, 64 MB of it are worth a collection of the whole heap to V8, and so one every few hundred replies.
 */
export class ReplyBytes {
  readonly #chunks: Buffer[] = []
  #length = 0
  /** What is there is a copy of all chunks, in memory of its own. */
  #isJoined = false

  get length(): number {
    return this.#length
  }

  push(chunk: Buffer): void {
    this.#chunks.push(chunk)
    this.#length += chunk.length
  }

  /** All of it in one piece. */
  joined(): Buffer {
    const [only] = this.#chunks
    if (only && this.#chunks.length === 1) return only
    const joined = Buffer.concat(this.#chunks)
    this.#chunks.splice(0, this.#chunks.length, joined)
    this.#isJoined = true
    return joined
  }

  /** All of it, in memory that can be given away; afterwards there is nothing here. */
  give(): Uint8Array<ArrayBuffer>[] {
    const given: Uint8Array<ArrayBuffer>[] = []
    let small: Buffer[] = []
    const endSmall = (): void => {
      if (small.length > 0) given.push(copied(small))
      small = []
    }
    // The parser is still at the read that the last chunk is from: that is copied.
    const last = this.#isJoined ? undefined : this.#chunks.at(-1)?.buffer
    for (const chunk of this.#chunks) {
      const { buffer, byteOffset, length } = chunk
      const isOwn = length >= wholeReadBytes && buffer !== last && !isMarkedAsUntransferable(buffer)
      if (isOwn && buffer instanceof ArrayBuffer) {
        endSmall()
        given.push(new Uint8Array(buffer, byteOffset, length))
      } else {
        small.push(chunk)
      }
    }
    endSmall()
    this.#chunks.length = 0
    return given
  }
}

/** Neither from the pool, which cannot be given away, nor filled with zeros first. */
function copied(chunks: readonly Buffer[]): Uint8Array<ArrayBuffer> {
  const copy = Buffer.allocUnsafeSlow(chunks.reduce((sum, { length }) => sum + length, 0))
  let at = 0
  for (const chunk of chunks) {
    copy.set(chunk, at)
    at += chunk.length
  }
  return new Uint8Array(copy.buffer, 0, copy.length)
}
