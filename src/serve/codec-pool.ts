import { availableParallelism } from 'node:os'
import { MillraceError } from '../errors/index.ts'
import { closeAll, RecentWaits, Resource, RingQueue } from '../kit/index.ts'
import { CodecCall } from './_codec-call.ts'
import { CodecWorker } from './_codec-worker.ts'
import type { CodecJob, DecodedBody, DecodedHead, RecordForm, RolloutHead } from './codec-messages.ts'

export interface CodecStatus {
  readonly threads: number
  readonly maxThreads: number
  /** Jobs that threads have, those that wait for a slow client among them. */
  readonly jobs: number
  readonly queued: number
  /** From the request to the thread's first touch, of the last few hundred jobs. */
  readonly queueWaitP99Ms: number
  readonly queueWaitMaxMs: number
  /** From the request to the last byte handed over: a slow client shows here. */
  readonly replyP99Ms: number
}

/** Jobs that one thread works on at once: chunk by chunk, turn about. */
const busyPerThread = 8
/** With those that wait for their clients. Each holds its rollout in memory; a client may take nothing for a minute. */
const openPerThread = 64
/** As many for each thread call for another. */
const crowdedJobs = 2
/** Jobs that wait for a thread; past it, `overloaded`. */
const maxQueued = 1_024
/** A thread beyond the first that had nothing to do for so long is ended. */
const maxIdleMs = 30_000
/** After one that could not start, as long as there are others. */
const startPauseMs = 15_000

/**
 * Threads that read rollouts from the run's own database and write them as JSON, and that parse large requests: what would
 * hold up the front's loop. One is always warm; another is started whenever all of them are busy, up to a limit.
 */
export class CodecPool extends Resource {
  readonly #folder: string
  readonly #maxThreads: number
  readonly #workers = new Set<CodecWorker>()
  readonly #queue = new RingQueue<CodecCall>()
  readonly #queueWaits = new RecentWaits()
  readonly #replies = new RecentWaits()
  readonly #reaper: NodeJS.Timeout
  #lastJob = 0
  #noGrowthBefore = 0

  private constructor(folder: string, maxThreads: number) {
    super()
    this.#folder = folder
    this.#maxThreads = maxThreads
    this.#reaper = setInterval(() => this.#endIdle(), maxIdleMs / 2).unref()
  }

  /** Resolves once a thread is warm. */
  static async start(folder: string, maxThreads = Math.min(4, availableParallelism())): Promise<CodecPool> {
    const pool = new CodecPool(folder, maxThreads)
    try {
      await pool.#grow().ready
      return pool
    } catch (error) {
      await pool.close()
      throw error
    }
  }

  status(): CodecStatus {
    let jobs = 0
    for (const worker of this.#workers) jobs += worker.jobs
    return {
      threads: this.#workers.size,
      maxThreads: this.#maxThreads,
      jobs,
      queued: this.#queue.size,
      queueWaitP99Ms: this.#queueWaits.p99Ms,
      queueWaitMaxMs: this.#queueWaits.maxMs,
      replyP99Ms: this.#replies.p99Ms,
    }
  }

  /** An ended rollout as JSON, in chunks. Asking for the next chunk says that the last one was taken. */
  async *encode(rollout: string, form: RecordForm): AsyncGenerator<Uint8Array<ArrayBuffer>, void, void> {
    const startedAt = performance.now()
    const call = this.#submit({ kind: 'encode', rollout, form })
    try {
      for await (const output of call.outputs()) yield output as Uint8Array<ArrayBuffer>
    } finally {
      call.leave()
      this.#replies.add(performance.now() - startedAt)
    }
  }

  /** Those of the rollouts that have ended, in order. */
  async heads(rollouts: readonly string[]): Promise<readonly RolloutHead[]> {
    const answer = await this.#submit({ kind: 'heads', rollouts }).outputs().next()
    return answer.value as readonly RolloutHead[]
  }

  /** A whole request body in its parts, whose memory goes to the thread: they must not be used afterwards. */
  async decode(body: readonly Uint8Array[]): Promise<DecodedBody> {
    const tasks: string[] = []
    const outputs = this.#submit({ kind: 'decode', body }).outputs()
    for (let next = await outputs.next(); ; next = await outputs.next()) {
      if (!next.done) {
        for (const text of next.value as readonly string[]) tasks.push(text)
        continue
      }
      const { head, hasTasks } = next.value as DecodedHead
      return { head, tasks: hasTasks ? tasks : undefined }
    }
  }

  protected async onClose(): Promise<void> {
    clearInterval(this.#reaper)
    await closeAll([...this.#workers])
    this.#failWaiting(new MillraceError('closed', 'the server is closing'))
  }

  #failWaiting(reason: MillraceError): void {
    const waiting = Array.from({ length: this.#queue.size }, () => this.#queue.shift())
    for (const call of waiting) call?.onFailure(reason)
  }

  #submit(work: CodecJob): CodecCall {
    this.throwIfClosed()
    if (this.#queue.size >= maxQueued) {
      throw new MillraceError('overloaded', `${maxQueued} jobs wait for a codec thread already; try again in a moment`)
    }
    const call = new CodecCall(work, {
      onBegin: (waitedMs) => this.#queueWaits.add(waitedMs),
      onSettled: () => this.#placeWaiting(),
    })
    this.#queue.push(call)
    this.#placeWaiting()
    return call
  }

  #placeWaiting(): void {
    if (this.isClosed) return
    let worker = this.#leastBusy()
    while (worker && this.#queue.size > 0) {
      this.#lastJob += 1
      this.#queue.shift()?.goTo(worker, this.#lastJob)
      worker = this.#leastBusy()
    }
    this.#followLoad()
  }

  /** Another thread once each has several jobs. It takes a moment to start, so nothing waits for it in particular. */
  #followLoad(): void {
    const isStarting = [...this.#workers].some((worker) => !worker.isAvailable)
    if (isStarting || this.#workers.size >= this.#maxThreads) return
    if (this.#workers.size > 0 && performance.now() < this.#noGrowthBefore) return
    const leastBusy = this.#leastBusy()
    if (!leastBusy || leastBusy.busy >= crowdedJobs) this.#grow()
  }

  #leastBusy(): CodecWorker | undefined {
    let found: CodecWorker | undefined
    for (const worker of this.#workers) {
      const hasRoom = worker.isAvailable && worker.busy < busyPerThread && worker.jobs < openPerThread
      if (hasRoom && (!found || worker.busy < found.busy)) found = worker
    }
    return found
  }

  #grow(): CodecWorker {
    const worker = new CodecWorker(
      { folder: this.#folder },
      {
        onReady: () => this.#placeWaiting(),
        onStall: () => this.#placeWaiting(),
        onGone: (reason, hasWorked) => {
          this.#workers.delete(worker)
          if (hasWorked) return this.#placeWaiting()
          // The next would not start either, for now. Those who wait go on with the others; if there are none, they are told.
          this.#noGrowthBefore = performance.now() + startPauseMs
          if (this.#workers.size === 0) this.#failWaiting(reason)
        },
      },
    )
    this.#workers.add(worker)
    return worker
  }

  #endIdle(): void {
    const available = [...this.#workers].filter((worker) => worker.isAvailable)
    const idle = available.filter((worker) => worker.idleMs > maxIdleMs)
    // One stays warm.
    for (const worker of idle.slice(idle.length === available.length ? 1 : 0)) void worker.close()
  }
}
