import { availableParallelism } from 'node:os'
import { MillraceError } from '../../errors/index.ts'
import { machineShare, RecentWaits, RingQueue, workerUrl } from '../../kit/index.ts'
import type { DecodeAnswer, DecodedReply } from './decode-messages.ts'
import { DecodeWorker, type DecodeWorkerOwner } from './_decode-worker.ts'

export interface DecodePoolStatus {
  readonly threads: number
  readonly maxThreads: number
  /** Replies that wait for a thread, and replies that a thread has. */
  readonly queued: number
  readonly running: number
  readonly decoded: number
  /** Replies that no thread could decode, and replies whose thread died. */
  readonly lost: number
  /** Replies that were decoded on the loop because too many bytes were waiting. */
  readonly refused: number
  /** How long the last replies waited beyond the work itself, including the way there and back. */
  readonly waitP99Ms: number
  readonly waitMaxMs: number
  /** The time that all threads together have worked. */
  readonly busyMs: number
}

export interface DecodePoolOptions {
  /** This worker's share of the cores, and one at least, if not given. */
  readonly maxThreads?: number
  readonly maxQueuedBytes?: number
  /** Replaces the entry of the decode thread. */
  readonly entry?: URL
}

/**
 * Replies from this size on, about 380 tokens, are decoded on another thread. Measured: a smaller reply costs the loop less
 * if it is read there than if it is sent to a thread and back; see docs/performance-notes.md.
 */
export const offLoopBytes = 32 * 1024

/** Jobs a thread is given at once: it has the next one already, even if this loop is late. */
const jobsPerThread = 2
/** Threads that were idle for this long are ended, except for one. */
const idleMs = 30_000
/** After this many threads have died before they answered once, no more are started. */
const maxFailedStarts = 3
const cores = availableParallelism()

interface Waiting {
  readonly pieces: Pieces
  readonly bytes: number
  readonly pending: Pending
}

/** A reply in pieces, each in memory that can be given away. */
type Pieces = readonly Uint8Array<ArrayBuffer>[]

interface Pending {
  readonly queuedAt: number
  readonly resolve: (decoded: DecodedReply) => void
  readonly reject: (error: Error) => void
}

/**
 * The threads that take the tokens out of long replies, shared by all backends of one event loop. Threads are started only
 * while the pool has a holder and work: one more whenever all are busy, up to this worker's share of the cores. They end when
 * the last holder lets go. At most `maxQueuedBytes` wait. Further replies are refused, and their owner decodes them on the loop,
 * which slows down new requests.
 */
export class DecodePool implements DecodeWorkerOwner {
  readonly #givenThreads: number | undefined
  readonly #maxQueuedBytes: number
  readonly #entry: URL
  readonly #workers = new Set<DecodeWorker>()
  readonly #queue = new RingQueue<Waiting>()
  readonly #pending = new Map<number, Pending>()
  readonly #waits = new RecentWaits()
  #queuedBytes = 0
  #holders = 0
  #lastJob = 0
  #decoded = 0
  #lost = 0
  #refused = 0
  #busyMs = 0
  #failedStarts = 0
  #sweep: NodeJS.Timeout | undefined

  constructor({ maxThreads, maxQueuedBytes, entry }: DecodePoolOptions = {}) {
    this.#givenThreads = maxThreads
    this.#maxQueuedBytes = maxQueuedBytes ?? 256 * 1024 * 1024
    this.#entry = entry ?? workerUrl(import.meta, './_decode-thread')
  }

  /** Asked anew each time: the pool is made before a worker knows how many others it shares the cores with. */
  get #maxThreads(): number {
    return this.#givenThreads ?? machineShare(cores)
  }

  /** Holds the pool, as all its users must. The last one to let go ends its threads. */
  hold(): AsyncDisposable {
    this.#holders += 1
    let ended: Promise<void> | undefined
    const letGo = (): Promise<void> => {
      this.#holders -= 1
      return this.#holders === 0 ? this.#endThreads() : Promise.resolve()
    }
    return { [Symbol.asyncDispose]: () => (ended ??= letGo()) }
  }

  /** Starts the first thread, so that it is ready when it is needed. */
  warm(): void {
    if (this.#workers.size === 0 && this.#holders > 0) this.#startThread()
  }

  /** Whether the pool takes a reply of this size now. */
  accepts(bytes: number): boolean {
    const isFull = this.#queuedBytes > 0 && this.#queuedBytes + bytes > this.#maxQueuedBytes
    const isAccepted = !isFull && this.#holders > 0 && this.#failedStarts < maxFailedStarts
    if (!isAccepted) this.#refused += 1
    return isAccepted
  }

  /** Decodes a reply that was accepted. Its memory is transferred. Rejects if it cannot be decoded or its thread dies. */
  decode(pieces: Pieces): Promise<DecodedReply> {
    const bytes = pieces.reduce((sum, { length }) => sum + length, 0)
    return new Promise((resolve, reject) => {
      this.#queue.push({ pieces, bytes, pending: { queuedAt: performance.now(), resolve, reject } })
      this.#queuedBytes += bytes
      this.#dispatch()
    })
  }

  status(): DecodePoolStatus {
    return {
      threads: this.#workers.size,
      maxThreads: this.#maxThreads,
      queued: this.#queue.size,
      running: this.#pending.size,
      decoded: this.#decoded,
      lost: this.#lost,
      refused: this.#refused,
      waitP99Ms: this.#waits.p99Ms,
      waitMaxMs: this.#waits.maxMs,
      busyMs: this.#busyMs,
    }
  }

  onAnswer(_worker: DecodeWorker, answer: DecodeAnswer): void {
    const [pending] = this.#takePending(answer.job)
    if (!pending) return
    this.#failedStarts = 0
    if (answer.kind === 'failed') {
      this.#lost += 1
      this.#dispatch()
      pending.reject(MillraceError.fromWire(answer.error))
      return
    }
    const { workMs } = answer
    this.#waits.add(Math.max(0, performance.now() - pending.queuedAt - workMs))
    this.#decoded += 1
    this.#busyMs += workMs
    this.#dispatch()
    pending.resolve(answer)
  }

  onDeath(worker: DecodeWorker, why: Error): void {
    this.#workers.delete(worker)
    if (!worker.hasAnswered) this.#failedStarts += 1
    const lost = [...worker.jobs].flatMap((job) => this.#takePending(job))
    this.#lost += lost.length
    if (this.#failedStarts >= maxFailedStarts && this.#workers.size === 0) lost.push(...this.#takeQueue())
    this.#dispatch()
    for (const { reject } of lost) reject(why)
  }

  #dispatch(): void {
    while (this.#queue.size > 0) {
      const worker = this.#leastBusy()
      if (!worker) return
      const next = this.#queue.shift()
      if (!next) return
      const { pieces, bytes, pending } = next
      this.#queuedBytes -= bytes
      this.#lastJob += 1
      this.#pending.set(this.#lastJob, pending)
      worker.send({ job: this.#lastJob, pieces })
    }
  }

  /** The thread with the fewest jobs, if it has room. If none has room, another thread is started. */
  #leastBusy(): DecodeWorker | undefined {
    let best: DecodeWorker | undefined
    for (const worker of this.#workers) if (!best || worker.jobs.size < best.jobs.size) best = worker
    const isBusy = !best || best.jobs.size >= jobsPerThread
    if (!isBusy) return best
    return this.#workers.size < this.#maxThreads ? this.#startThread() : undefined
  }

  #startThread(): DecodeWorker | undefined {
    if (this.#failedStarts >= maxFailedStarts) return undefined
    const worker = new DecodeWorker(this.#entry, this)
    this.#workers.add(worker)
    if (this.#workers.size > 1) this.#sweep ??= setInterval(this.#endIdle, idleMs).unref()
    return worker
  }

  readonly #endIdle = (): void => {
    const oldest = performance.now() - idleMs
    for (const worker of this.#workers) {
      if (this.#workers.size === 1) break
      if (worker.jobs.size > 0 || worker.lastUsedAt > oldest) continue
      this.#workers.delete(worker)
      void worker.end()
    }
    if (this.#workers.size <= 1) this.#stopSweep()
  }

  async #endThreads(): Promise<void> {
    this.#stopSweep()
    const workers = [...this.#workers]
    this.#workers.clear()
    this.#failedStarts = 0
    const left = workers.flatMap((worker) => [...worker.jobs].flatMap((job) => this.#takePending(job)))
    left.push(...this.#takeQueue())
    for (const { reject } of left) reject(new MillraceError('closed', 'the last backend was closed'))
    await Promise.all(workers.map((worker) => worker.end()))
  }

  #stopSweep(): void {
    clearInterval(this.#sweep)
    this.#sweep = undefined
  }

  #takePending(job: number): Pending[] {
    const pending = this.#pending.get(job)
    this.#pending.delete(job)
    return pending ? [pending] : []
  }

  #takeQueue(): Pending[] {
    const taken: Pending[] = []
    for (let next = this.#queue.shift(); next; next = this.#queue.shift()) taken.push(next.pending)
    this.#queuedBytes = 0
    return taken
  }
}

/** The pool that all backends of this thread share. */
export const decodePool = new DecodePool()
