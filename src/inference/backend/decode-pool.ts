import { availableParallelism } from 'node:os'
import { isMarkedAsUntransferable } from 'node:worker_threads'
import type { ScannedReply } from '../../apis/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { machineShare, ThreadPool, workerUrl } from '../../kit/index.ts'

interface DecodePoolStatus {
  readonly threads: number
  readonly queued: number
  readonly running: number
  readonly decoded: number
  /** How long the last replies waited until a thread began them. */
  readonly waitP99Ms: number
}

interface DecodePoolOptions {
  /** This worker's share of the cores, and one at least, if not given. */
  readonly maxThreads?: number
  readonly maxBytes?: number
  /** Replaces the entry of the decode thread. */
  readonly entry?: URL
}

export interface DecodedReply {
  readonly scanned: ScannedReply
  /** The text that the ids of the prompt were read from, if it is most of the reply. */
  readonly promptText?: Uint8Array<ArrayBuffer>
}

/** A reply in pieces, each in memory that can be given away. */
type Pieces = readonly Uint8Array<ArrayBuffer>[]

/** Replies from this size on, about 380 tokens, cost the loop less if they are sent to a thread and back. */
export const offLoopBytes = 32 * 1024

/** A thread has the next reply already, even if this loop is late. */
const jobsPerThread = 2
/** `accepts` counts bytes; this many replies of `offLoopBytes` reach that limit first. */
const maxQueued = 10_000
/** After this many threads in a row could not start, replies are decoded on the loop. */
const maxFailedStarts = 3
const cores = availableParallelism()

/**
 * The threads that take the tokens out of long replies, shared by all backends of one event loop. They live while the pool
 * has a holder. Beyond `maxBytes` replies are refused and decoded on the loop, which slows down new requests.
 */
export class DecodePool {
  readonly #options: DecodePoolOptions
  readonly #maxBytes: number
  #threads: ThreadPool<Pieces, DecodedReply> | undefined
  #holders = 0
  #bytes = 0
  #decoded = 0

  constructor(options: DecodePoolOptions = {}) {
    this.#options = options
    this.#maxBytes = options.maxBytes ?? 256 * 1024 * 1024
  }

  /** Holds the pool, as all its users must. The last one to let go ends its threads. */
  hold(): AsyncDisposable {
    this.#holders += 1
    let ended: Promise<void> | undefined
    const release = async (): Promise<void> => {
      this.#holders -= 1
      if (this.#holders > 0) return
      const threads = this.#threads
      this.#threads = undefined
      await threads?.close(new MillraceError('closed', 'the last backend was closed'))
    }
    return { [Symbol.asyncDispose]: () => (ended ??= release()) }
  }

  warm(): void {
    // If it cannot start, the first reply fails and says why.
    if (this.#holders > 0 && !this.#threads)
      this.#opened()
        .warm()
        .catch(() => {})
  }

  accepts(bytes: number): boolean {
    const isFull = this.#bytes > 0 && this.#bytes + bytes > this.#maxBytes
    const failedStarts = this.#threads?.status().failedStarts ?? 0
    return !isFull && this.#holders > 0 && failedStarts < maxFailedStarts
  }

  /** Decodes a reply that was accepted. Its memory is transferred. Rejects if it cannot be decoded or its thread dies. */
  async decode(pieces: Pieces): Promise<DecodedReply> {
    const bytes = pieces.reduce((sum, { length }) => sum + length, 0)
    // Several pieces may lie in the same memory, which can be transferred only once.
    const memory = new Set(pieces.map(({ buffer }) => buffer))
    this.#bytes += bytes
    try {
      const decoded = await this.#opened().run(pieces, { transfer: [...memory] })
      this.#decoded += 1
      return decoded
    } finally {
      this.#bytes -= bytes
    }
  }

  status(): DecodePoolStatus {
    const { threads, queued, running, waitP99Ms } = this.#threads?.status() ?? noThreads
    return { threads, queued, running, waitP99Ms, decoded: this.#decoded }
  }

  #opened(): ThreadPool<Pieces, DecodedReply> {
    const { entry, maxThreads } = this.#options
    this.#threads ??= new ThreadPool({
      entry: entry ?? workerUrl(import.meta, './decode-thread'),
      name: 'millrace-decode',
      // Asked anew each time: the pool is made before a worker knows how many others it shares the cores with.
      maxThreads: () => maxThreads ?? machineShare(cores),
      jobsPerThread,
      crowdedJobs: jobsPerThread,
      maxQueued,
      whenFull: 'lower --concurrency (concurrency)',
      onAbort: 'cancel',
      died: (why) => why,
    })
    return this.#threads
  }
}

const noThreads = { threads: 0, queued: 0, running: 0, waitP99Ms: 0 }

export const decodePool = new DecodePool()

/** A chunk of at least this size is a read of its own, whose memory nothing else uses. */
const wholeReadBytes = 16 * 1024

/** The chunks of a body in memory that can be transferred. `isJoined`: the only chunk is a copy, in memory of its own. */
export function transferable(
  chunks: readonly Buffer[],
  { isJoined }: { readonly isJoined: boolean },
): Uint8Array<ArrayBuffer>[] {
  const given: Uint8Array<ArrayBuffer>[] = []
  let small: Buffer[] = []
  const endSmall = (): void => {
    if (small.length > 0) given.push(copied(small))
    small = []
  }
  // The HTTP parser may still use the memory of the last chunk, so that chunk is copied.
  const last = isJoined ? undefined : chunks.at(-1)?.buffer
  for (const chunk of chunks) {
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
  return given
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
