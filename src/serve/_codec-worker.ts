import { MillraceError } from '../errors/index.ts'
import { Resource, Thread, workerUrl } from '../kit/index.ts'
import {
  maxUnderWay,
  type CodecAnswer,
  type CodecJob,
  type CodecOutput,
  type CodecStart,
  type FromCodec,
  type ToCodec,
} from './codec-messages.ts'

/** A job, and what it hears of its progress. Exactly one of `onEnd` and `onFailure` comes, and it comes last. */
export interface CodecListener {
  readonly work: CodecJob
  /** In nanoseconds of the monotonic clock that all threads share. */
  readonly submittedAt: bigint
  onBegin(waitedMs: number): void
  onOutput(output: CodecOutput): void
  onEnd(value: CodecAnswer): void
  onFailure(error: MillraceError): void
}

export interface CodecWorkerEvents {
  readonly onReady: () => void
  /** It has one job less to work on: that one waits for its client. */
  readonly onStall: () => void
  readonly onGone: (reason: MillraceError, hasWorked: boolean) => void
}

interface OpenJob {
  readonly listener: CodecListener
  /** Outputs that were not taken yet. */
  underWay: number
}

const closeGraceMs = 5_000

/** One codec thread, as the front sees it. */
export class CodecWorker extends Resource {
  readonly ready: Promise<void>
  readonly #thread: Thread<ToCodec>
  readonly #events: CodecWorkerEvents
  readonly #jobs = new Map<number, OpenJob>()
  #stalled = 0
  #idleSince = performance.now()
  #isReady = false

  constructor(start: CodecStart, events: CodecWorkerEvents) {
    super()
    this.#events = events
    this.#thread = new Thread(workerUrl(import.meta, './_codec-thread'), { name: 'millrace-codec', workerData: start })
    const ready = Promise.withResolvers<void>()
    this.ready = ready.promise
    // Whoever has given it a job hears of its end there.
    ready.promise.catch(() => {})
    void this.#thread.ended.then((why) => {
      const reason = this.isClosed
        ? new MillraceError('closed', 'the server is closing')
        : new MillraceError('worker_lost', `a thread that encodes replies died: ${why.message}`, { cause: why })
      ready.reject(reason)
      const open = [...this.#jobs.values()]
      this.#jobs.clear()
      for (const { listener } of open) listener.onFailure(reason)
      events.onGone(reason, this.#isReady)
    })
    this.#thread.on('message', (message: FromCodec) => {
      if (message.kind !== 'ready') return this.#onMessage(message)
      this.#isReady = true
      ready.resolve()
      return events.onReady()
    })
  }

  /** Whether it answers at once: not while it starts, nor once it is closing. */
  get isAvailable(): boolean {
    return this.#isReady && !this.isClosed
  }

  get jobs(): number {
    return this.#jobs.size
  }

  /** Those it works on: one whose client takes nothing costs it no time. */
  get busy(): number {
    return this.#jobs.size - this.#stalled
  }

  /** How long it has had nothing to do. */
  get idleMs(): number {
    return this.#jobs.size > 0 ? 0 : performance.now() - this.#idleSince
  }

  start(job: number, listener: CodecListener): void {
    const { work, submittedAt } = listener
    this.#jobs.set(job, { listener, underWay: 0 })
    const message: ToCodec = { kind: 'start', job, work, submittedAt }
    this.#thread.postMessage(message, work.kind === 'decode' ? ownMemory(work.body) : [])
  }

  /** What came last was taken: more may come. */
  credit(job: number): void {
    const open = this.#jobs.get(job)
    if (!open) return
    if (open.underWay === maxUnderWay) this.#stalled -= 1
    open.underWay -= 1
    this.#thread.postMessage({ kind: 'credit', job })
  }

  /** Nobody waits for it any more; its end is still heard of. */
  cancel(job: number): void {
    if (this.#jobs.has(job)) this.#thread.postMessage({ kind: 'cancel', job })
  }

  protected onClose(): Promise<void> {
    return this.#thread.end({ kind: 'close' }, closeGraceMs)
  }

  #onMessage(message: Exclude<FromCodec, { kind: 'ready' }>): void {
    const open = this.#jobs.get(message.job)
    if (!open) return
    const { listener } = open
    switch (message.kind) {
      case 'begin':
        listener.onBegin(message.waitedMs)
        return
      case 'output':
        open.underWay += 1
        listener.onOutput(message.output)
        if (open.underWay < maxUnderWay) return
        this.#stalled += 1
        this.#events.onStall()
        return
      case 'end':
        this.#remove(message.job, open)
        listener.onEnd(message.value)
        return
      case 'failed':
        this.#remove(message.job, open)
        listener.onFailure(MillraceError.fromWire(message.error))
        return
    }
  }

  #remove(job: number, { underWay }: OpenJob): void {
    this.#jobs.delete(job)
    if (underWay === maxUnderWay) this.#stalled -= 1
    if (this.#jobs.size === 0) this.#idleSince = performance.now()
  }
}

/** What parts have to themselves goes to the thread as it is. Memory that is shared, as small ones may have it, is copied. */
function ownMemory(parts: readonly Uint8Array[]): ArrayBuffer[] {
  const buffers: ArrayBuffer[] = []
  for (const { buffer, byteLength } of parts) {
    if (buffer instanceof ArrayBuffer && buffer.byteLength === byteLength) buffers.push(buffer)
  }
  return buffers
}
