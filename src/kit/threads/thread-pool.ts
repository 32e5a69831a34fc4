import type { Transferable } from 'node:worker_threads'
import { MillraceError } from '../../errors/index.ts'
import { offAbort, onAbort, Resource, timerMs } from '../async/lifecycle.ts'
import { RingQueue } from '../async/queues.ts'
import { nameBlockedThread } from './blocked-thread.ts'
import { RecentWaits } from './loop-lag.ts'
import type { FromPoolThread, ToPoolThread } from './serve-jobs.ts'
import { Thread } from './thread.ts'

export interface ThreadPoolOptions {
  readonly entry: URL
  readonly name: string
  readonly workerData?: unknown
  readonly maxThreads: () => number
  readonly jobsPerThread: number
  /** Another thread is started as long as there are more jobs than this for each thread. */
  readonly crowdedJobs: number
  readonly maxQueued: number
  /** The advice to the caller when `maxQueued` jobs wait. */
  readonly whenFull: string
  /** Whether a job that was aborted is told to end, or is ended with its thread: for code that may not listen. */
  readonly onAbort: 'cancel' | 'terminate'
  readonly died: (why: Error) => Error
}

interface ThreadPoolStatus {
  readonly threads: number
  readonly queued: number
  readonly running: number
  /** How long the last few hundred jobs waited until a thread began them. */
  readonly waitP99Ms: number
  readonly waitMaxMs: number
  /** Threads that could not start, since the last one that could. */
  readonly failedStarts: number
}

/** A thread that was idle for this long is ended, except for the last one. */
const maxIdleMs = 30_000
/** After a thread could not start, no other is started for this long, as long as there are threads. */
const startPauseMs = 15_000
/** How long a thread may take to end by itself. */
const closeGraceMs = 5_000

/** Runs jobs that would hold up the event loop. A thread that dies fails its own jobs only, and is replaced. */
export class ThreadPool<Work, Value, Output = never> extends Resource {
  readonly #options: ThreadPoolOptions
  readonly #threads = new Set<PoolThread<Work, Value, Output>>()
  // A Set iterates in insertion order, so the first is the one that has waited longest.
  readonly #queue = new Set<PoolJob<Work, Value, Output>>()
  readonly #waits = new RecentWaits()
  /** Threads that were told to end. One inside a native call stays here until that returns. */
  readonly #ending = new Set<PoolThread<Work, Value, Output>>()
  #lastJob = 0
  #failedStarts = 0
  #noGrowthBefore = 0
  #sweep: NodeJS.Timeout | undefined

  constructor(options: ThreadPoolOptions) {
    super()
    this.#options = options
  }

  async warm(): Promise<void> {
    this.throwIfClosed()
    const [first] = this.#threads
    await (first ?? this.#start()).started.promise
  }

  status(): ThreadPoolStatus {
    return {
      threads: this.#threads.size,
      queued: this.#queue.size,
      running: this.#running,
      waitP99Ms: this.#waits.p99Ms,
      waitMaxMs: this.#waits.maxMs,
      failedStarts: this.#failedStarts,
    }
  }

  /** Rejects if the job fails, if its thread dies, and with the signal's reason if that aborts first. */
  async run(work: Work, options: JobOptions = {}): Promise<Value> {
    return await this.#submit(work, options).result
  }

  /** The outputs of a job, then its result. Asking for the next output says that the last one was taken. */
  async *stream(work: Work, options: JobOptions = {}): AsyncGenerator<Output, Value, void> {
    const job = this.#submit(work, options)
    try {
      for (let output = await job.nextOutput(); output !== undefined; output = await job.nextOutput()) {
        yield output
        job.thread?.postMessage({ kind: 'credit', job: job.id })
      }
      return await job.result
    } finally {
      this.#abort(job, new MillraceError('cancelled', 'the caller no longer waits for this job'))
    }
  }

  protected async onClose(): Promise<void> {
    clearInterval(this.#sweep)
    this.#failQueue(this.closedSignal.reason)
    for (const thread of this.#threads) {
      for (const job of thread.jobs.values()) job.reject(this.closedSignal.reason)
      this.#end(thread)
    }
    await Promise.all(Array.from(this.#ending, ({ ended }) => ended))
  }

  get #running(): number {
    let jobs = 0
    for (const thread of this.#threads) jobs += thread.jobs.size
    return jobs
  }

  #submit(work: Work, options: JobOptions): PoolJob<Work, Value, Output> {
    this.throwIfClosed()
    options.signal?.throwIfAborted()
    const { name, maxQueued, whenFull } = this.#options
    this.#lastJob += 1
    const job = new PoolJob<Work, Value, Output>(this.#lastJob, work, options)
    if (this.#queue.size >= maxQueued) {
      job.reject(new MillraceError('overloaded', `${maxQueued} jobs already wait for a thread (${name}); ${whenFull}`))
      return job
    }
    job.listen((reason) => this.#abort(job, reason))
    this.#queue.add(job)
    this.#dispatch()
    return job
  }

  #dispatch(): void {
    if (this.isClosed) return
    for (const job of this.#queue) {
      const thread = this.#leastBusy()
      if (!thread) break
      this.#queue.delete(job)
      this.#startJob(job, thread)
    }
    this.#followLoad()
  }

  #leastBusy(): PoolThread<Work, Value, Output> | undefined {
    let found: PoolThread<Work, Value, Output> | undefined
    for (const thread of this.#threads) {
      const hasRoom = thread.state === 'ready' && thread.jobs.size < this.#options.jobsPerThread
      if (hasRoom && (!found || thread.jobs.size < found.jobs.size)) found = thread
    }
    return found
  }

  #startJob(job: PoolJob<Work, Value, Output>, thread: PoolThread<Work, Value, Output>): void {
    const { id, work, submittedAt, options } = job
    try {
      thread.postMessage({ kind: 'start', job: id, work, submittedAt }, options.transfer)
    } catch (error) {
      // It cannot be cloned. The thread is as free as before.
      job.reject(error)
      return
    }
    thread.jobs.set(id, job)
    job.start(thread, () => void this.#onLate(job))
  }

  #followLoad(): void {
    const { crowdedJobs } = this.#options
    const jobs = this.#queue.size + this.#running
    while (jobs > this.#threads.size * crowdedJobs && this.#mayGrow()) this.#start()
  }

  #mayGrow(): boolean {
    const size = this.#threads.size
    const maxThreads = this.#options.maxThreads()
    // Ending threads count too, or jobs inside native calls could gather threads without end.
    if (size >= maxThreads || size + this.#ending.size >= 2 * maxThreads) return false
    return size === 0 || performance.now() >= this.#noGrowthBefore
  }

  #start(): PoolThread<Work, Value, Output> {
    const { entry, name, workerData, died } = this.#options
    const thread = new PoolThread<Work, Value, Output>(entry, { name, workerData })
    // A caller of `warm` learns it, and so do the jobs that wait.
    thread.started.promise.catch(() => {})
    this.#threads.add(thread)
    if (this.#threads.size > 1) this.#sweep ??= setInterval(() => this.#endIdle(), maxIdleMs / 2).unref()
    thread.on('message', (message: FromPoolThread<Value, Output>) => this.#onMessage(thread, message))
    void thread.ended.then((why) => this.#onEnded(thread, died(why)))
    return thread
  }

  #onMessage(thread: PoolThread<Work, Value, Output>, message: FromPoolThread<Value, Output>): void {
    if (message.kind === 'ready') {
      thread.state = 'ready'
      thread.started.resolve()
      this.#failedStarts = 0
      this.#dispatch()
      return
    }
    if (message.kind === 'start-failed') {
      // What the thread had opened before it failed could keep it alive for ever.
      this.#end(thread, 'terminate')
      this.#onStartFailed(thread, MillraceError.fromWire(message.error))
      return
    }
    const job = thread.jobs.get(message.job)
    if (!job) return
    if (message.kind === 'output') {
      job.addOutput(message.output)
      return
    }
    thread.jobs.delete(job.id)
    thread.lastUsedAt = performance.now()
    this.#waits.add(message.waitedMs)
    this.#dispatch()
    if (message.kind === 'end') job.resolve(message.value)
    else job.reject(MillraceError.fromWire(message.error))
  }

  #onEnded(thread: PoolThread<Work, Value, Output>, error: Error): void {
    this.#ending.delete(thread)
    this.#threads.delete(thread)
    for (const job of thread.jobs.values()) job.reject(error)
    if (thread.state === 'starting') this.#onStartFailed(thread, error)
    else if (this.#queue.size > 0) this.#dispatch()
  }

  /** Another thread would not start either. Without other threads the waiting jobs fail, and the next job tries again. */
  #onStartFailed(thread: PoolThread<Work, Value, Output>, error: Error): void {
    thread.state = 'failed'
    thread.started.reject(error)
    if (this.isClosed) return
    this.#failedStarts += 1
    this.#noGrowthBefore = performance.now() + startPauseMs
    if (this.#threads.size === 0) this.#failQueue(error)
  }

  #failQueue(error: unknown): void {
    const waiting = [...this.#queue]
    this.#queue.clear()
    for (const job of waiting) job.reject(error)
  }

  #abort(job: PoolJob<Work, Value, Output>, reason: unknown): void {
    if (!job.reject(reason)) return
    if (this.#queue.delete(job) || !job.thread) return
    if (this.#options.onAbort === 'terminate') this.#terminate(job.thread)
    else job.thread.postMessage({ kind: 'cancel', job: job.id })
  }

  async #onLate(job: PoolJob<Work, Value, Output>): Promise<void> {
    const { signal, timeout } = job.options
    const place = job.thread && (await nameBlockedThread(job.thread, signal ?? this.closedSignal))
    this.#abort(job, timeout?.error(place))
  }

  /** Ends the thread of a job that may not listen, and keeps one thread warm. */
  #terminate(thread: PoolThread<Work, Value, Output>): void {
    this.#end(thread)
    if (this.#threads.size === 0 && !this.isClosed) this.#start()
    else this.#dispatch()
  }

  #end(thread: PoolThread<Work, Value, Output>, how = this.#options.onAbort): void {
    this.#threads.delete(thread)
    this.#ending.add(thread)
    if (how === 'terminate') void thread.terminate()
    else void thread.end({ kind: 'close' }, closeGraceMs)
  }

  #endIdle(): void {
    const oldest = performance.now() - maxIdleMs
    for (const thread of this.#threads) {
      const isIdle = thread.state === 'ready' && thread.jobs.size === 0 && thread.lastUsedAt < oldest
      if (isIdle && this.#threads.size > 1) this.#end(thread)
    }
    if (this.#threads.size > 1) return
    clearInterval(this.#sweep)
    this.#sweep = undefined
  }
}

interface JobOptions {
  readonly transfer?: readonly Transferable[]
  readonly signal?: AbortSignal
  readonly timeout?: JobTimeout
  /** Called once, when the job no longer waits for a thread: also if it fails or is aborted before. */
  readonly onWaited?: () => void
}

interface JobTimeout {
  /** Counts from the start on a thread. */
  readonly ms: number
  /** The error of a job that took longer. `place` is the function that its thread was stuck in, if that can be told. */
  readonly error: (place: string | undefined) => Error
}

class PoolJob<Work, Value, Output> {
  readonly id: number
  readonly work: Work
  readonly options: JobOptions
  /** In nanoseconds of the monotonic clock that all threads share. */
  readonly submittedAt = process.hrtime.bigint()
  readonly #result = Promise.withResolvers<Value>()
  readonly #outputs = new RingQueue<Output>()
  #thread: PoolThread<Work, Value, Output> | undefined
  #state: 'waiting' | 'running' | 'settled' = 'waiting'
  #timer: NodeJS.Timeout | undefined
  #wakeReader: (() => void) | undefined
  #stopListening: (() => void) | undefined

  constructor(id: number, work: Work, options: JobOptions) {
    this.id = id
    this.work = work
    this.options = options
    // The reader of a job that was aborted may be gone.
    this.#result.promise.catch(() => {})
  }

  get result(): Promise<Value> {
    return this.#result.promise
  }

  get thread(): PoolThread<Work, Value, Output> | undefined {
    return this.#thread
  }

  listen(abort: (reason: unknown) => void): void {
    const { signal } = this.options
    if (!signal) return
    const listener = { handleEvent: () => abort(signal.reason) }
    onAbort(signal, listener)
    this.#stopListening = () => offAbort(signal, listener)
  }

  start(thread: PoolThread<Work, Value, Output>, onLate: () => void): void {
    this.#thread = thread
    this.#state = 'running'
    const { timeout, onWaited } = this.options
    if (timeout) this.#timer = setTimeout(onLate, timerMs(timeout.ms))
    onWaited?.()
  }

  addOutput(output: Output): void {
    this.#outputs.push(output)
    this.#wakeReader?.()
  }

  async nextOutput(): Promise<Output | undefined> {
    while (this.#outputs.size === 0 && this.#state !== 'settled') {
      const { promise, resolve } = Promise.withResolvers<void>()
      this.#wakeReader = resolve
      await promise
    }
    return this.#outputs.shift()
  }

  resolve(value: Value): void {
    if (this.#settle()) this.#result.resolve(value)
  }

  reject(error: unknown): boolean {
    const isOpen = this.#settle()
    if (isOpen) this.#result.reject(error)
    return isOpen
  }

  #settle(): boolean {
    if (this.#state === 'settled') return false
    if (this.#state === 'waiting') this.options.onWaited?.()
    this.#state = 'settled'
    clearTimeout(this.#timer)
    this.#stopListening?.()
    this.#wakeReader?.()
    return true
  }
}

class PoolThread<Work, Value, Output> extends Thread<ToPoolThread<Work>> {
  readonly jobs = new Map<number, PoolJob<Work, Value, Output>>()
  state: 'starting' | 'ready' | 'failed' = 'starting'
  lastUsedAt = performance.now()
  readonly started = Promise.withResolvers<void>()
}
