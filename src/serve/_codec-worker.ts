import { Worker } from 'node:worker_threads'
import { MillraceError } from '../errors/index.ts'
import { Resource, workerUrl } from '../kit/index.ts'
import type { CodecAnswer, CodecJob, CodecOutput, CodecStart, FromCodec, ToCodec } from './codec-messages.ts'

/** A job, and what it hears of its progress. Exactly one of `onEnd` and `onFailure` comes, and it comes last. */
export interface CodecListener {
  readonly work: CodecJob
  /** By the clock on the wall, which threads share. */
  readonly submittedAt: number
  onBegin(waitedMs: number): void
  onOutput(output: CodecOutput): void
  onEnd(value: CodecAnswer): void
  onFailure(error: MillraceError): void
}

const closeGraceMs = 5_000

/** One codec thread, as the front sees it. */
export class CodecWorker extends Resource {
  readonly ready: Promise<void>
  readonly #worker: Worker
  readonly #exited: Promise<void>
  readonly #jobs = new Map<number, CodecListener>()
  #idleSince = performance.now()
  #isReady = false

  constructor(
    start: CodecStart,
    events: { readonly onReady: () => void; readonly onGone: (reason: MillraceError, hasWorked: boolean) => void },
  ) {
    super()
    this.#worker = new Worker(workerUrl(import.meta, './_codec-thread'), { name: 'millrace-codec', workerData: start })
    const ready = Promise.withResolvers<void>()
    this.ready = ready.promise
    // Whoever has given it a job hears of its end there.
    ready.promise.catch(() => {})
    let death: MillraceError | undefined
    this.#worker.on('error', (error) => {
      death = new MillraceError('worker_lost', `a thread that encodes replies died: ${error.message}`, { cause: error })
    })
    this.#exited = new Promise((resolve) => {
      this.#worker.once('exit', () => {
        const reason = death ?? new MillraceError('closed', 'the server is closing')
        ready.reject(reason)
        for (const listener of this.#jobs.values()) listener.onFailure(reason)
        this.#jobs.clear()
        events.onGone(reason, this.#isReady)
        resolve()
      })
    })
    this.#worker.on('message', (message: FromCodec) => {
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

  /** How long it has had nothing to do. */
  get idleMs(): number {
    return this.#jobs.size > 0 ? 0 : performance.now() - this.#idleSince
  }

  start(job: number, listener: CodecListener): void {
    const { work, submittedAt } = listener
    this.#jobs.set(job, listener)
    this.#post({ kind: 'start', job, work, submittedAt })
  }

  /** More of the body that a job decodes; null is its end. */
  part(job: number, bytes: Uint8Array<ArrayBuffer> | null): void {
    if (this.#jobs.has(job)) this.#post({ kind: 'part', job, bytes }, bytes ? [bytes.buffer] : [])
  }

  /** What came last was taken: more may come. */
  credit(job: number): void {
    if (this.#jobs.has(job)) this.#post({ kind: 'credit', job })
  }

  /** Nobody waits for it any more; its end is still heard of. */
  cancel(job: number): void {
    if (this.#jobs.has(job)) this.#post({ kind: 'cancel', job })
  }

  protected async onClose(): Promise<void> {
    this.#post({ kind: 'close' })
    const timer = setTimeout(() => void this.#worker.terminate(), closeGraceMs)
    await this.#exited
    clearTimeout(timer)
  }

  #onMessage(message: Exclude<FromCodec, { kind: 'ready' }>): void {
    const listener = this.#jobs.get(message.job)
    switch (message.kind) {
      case 'begin':
        listener?.onBegin(message.waitedMs)
        return
      case 'output':
        listener?.onOutput(message.output)
        return
      case 'end':
        this.#remove(message.job)
        listener?.onEnd(message.value)
        return
      case 'failed':
        this.#remove(message.job)
        listener?.onFailure(MillraceError.fromWire(message.error))
        return
    }
  }

  #remove(job: number): void {
    this.#jobs.delete(job)
    if (this.#jobs.size === 0) this.#idleSince = performance.now()
  }

  #post(message: ToCodec, transfer: ArrayBuffer[] = []): void {
    this.#worker.postMessage(message, transfer)
  }
}
