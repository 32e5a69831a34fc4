import type { MillraceError } from '../errors/index.ts'
import { RingQueue } from '../kit/index.ts'
import type { CodecListener, CodecWorker } from './_codec-worker.ts'
import type { CodecAnswer, CodecJob, CodecOutput } from './codec-messages.ts'

export interface CodecCallEvents {
  readonly onBegin: (waitedMs: number) => void
  /** Its thread is done with it, one way or the other. */
  readonly onSettled: () => void
}

/** One job for a codec thread, from the request for it to its answer; it may wait for a thread first. */
export class CodecCall implements CodecListener {
  readonly work: CodecJob
  /** In nanoseconds of the monotonic clock that all threads share. */
  readonly submittedAt = process.hrtime.bigint()
  readonly #events: CodecCallEvents
  readonly #outputs = new RingQueue<CodecOutput>()
  #place: { readonly worker: CodecWorker; readonly job: number } | undefined
  #isLeft = false
  #settled: { readonly value: CodecAnswer } | { readonly error: MillraceError } | undefined
  #wake: (() => void) | undefined

  constructor(work: CodecJob, events: CodecCallEvents) {
    this.work = work
    this.#events = events
  }

  goTo(worker: CodecWorker, job: number): void {
    this.#place = { worker, job }
    worker.start(job, this)
    if (this.#isLeft) worker.cancel(job)
  }

  /** What comes of it, and in the end its answer. Asking for the next output says that the last one was taken. */
  async *outputs(): AsyncGenerator<CodecOutput, CodecAnswer, void> {
    for (;;) {
      const output = this.#outputs.shift()
      if (output) {
        yield output
        this.#place?.worker.credit(this.#place.job)
      } else if (this.#settled) {
        if ('error' in this.#settled) throw this.#settled.error
        return this.#settled.value
      } else {
        await new Promise<void>((resolve) => {
          this.#wake = resolve
        })
      }
    }
  }

  /** Nobody waits for it any more. */
  leave(): void {
    this.#isLeft = true
    if (!this.#settled) this.#place?.worker.cancel(this.#place.job)
  }

  onBegin(waitedMs: number): void {
    this.#events.onBegin(waitedMs)
  }

  onOutput(output: CodecOutput): void {
    this.#outputs.push(output)
    this.#wake?.()
  }

  onEnd(value: CodecAnswer): void {
    this.#settle({ value })
  }

  onFailure(error: MillraceError): void {
    this.#settle({ error })
  }

  #settle(settled: { readonly value: CodecAnswer } | { readonly error: MillraceError }): void {
    this.#settled = settled
    this.#wake?.()
    this.#events.onSettled()
  }
}
