import { isMarkedAsUntransferable } from 'node:worker_threads'

/** A chunk of at least this size is a read of its own, whose memory nothing else uses. */
const wholeReadBytes = 16 * 1024

/**
 * The body of a whole reply, in the chunks it came in; nearly always it is a single chunk. A long body can be transferred to
 * another thread with its memory: nothing is copied, and nothing is left for the collector here. V8 would collect the whole
 * heap for every 64 MB of such memory, and so every few hundred replies.
 */
export class ReplyBytes {
  readonly #chunks: Buffer[] = []
  #length = 0
  /** Whether the only chunk is a copy of all chunks, in memory of its own. */
  #isJoined = false

  get length(): number {
    return this.#length
  }

  push(chunk: Buffer): void {
    this.#chunks.push(chunk)
    this.#length += chunk.length
  }

  /** The whole body in one buffer. */
  joined(): Buffer {
    const [only] = this.#chunks
    if (only && this.#chunks.length === 1) return only
    const joined = Buffer.concat(this.#chunks)
    this.#chunks.splice(0, this.#chunks.length, joined)
    this.#isJoined = true
    return joined
  }

  /** The whole body in memory that can be transferred; afterwards nothing is left here. */
  give(): Uint8Array<ArrayBuffer>[] {
    const given: Uint8Array<ArrayBuffer>[] = []
    let small: Buffer[] = []
    const endSmall = (): void => {
      if (small.length > 0) given.push(copied(small))
      small = []
    }
    // The HTTP parser may still use the memory of the last chunk, so that chunk is copied.
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

/** A copy in memory of its own: the pool's cannot be transferred, and zeros need not be written first. */
function copied(chunks: readonly Buffer[]): Uint8Array<ArrayBuffer> {
  const copy = Buffer.allocUnsafeSlow(chunks.reduce((sum, { length }) => sum + length, 0))
  let at = 0
  for (const chunk of chunks) {
    copy.set(chunk, at)
    at += chunk.length
  }
  return new Uint8Array(copy.buffer, 0, copy.length)
}
