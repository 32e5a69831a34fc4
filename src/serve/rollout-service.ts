import { randomUUID } from 'node:crypto'
import { MillraceError } from '../errors/index.ts'
import { giveUpRun, openExecutor, requireKnownOptions, type ResolvedRun, type RunInfo } from '../eval/index.ts'
import { hash32, LoopLag, Resource } from '../kit/index.ts'
import { holdsGroups, type Executor, type PlannedRollout } from '../rollout/index.ts'
import type { Outcome, RolloutRecord } from '../schema/index.ts'
import type { RunStore } from '../store/index.ts'
import { startTelemetry, type MetricsDelta, type MetricsHub, type Telemetry } from '../telemetry/index.ts'
import { WorkerPool } from '../worker/index.ts'
import { checkTasks, type CheckedTasks } from './_check-tasks.ts'
import { DueRollouts } from './_due-rollouts.ts'
import { listRollouts, type ListFilter, type RolloutPage, type RolloutState } from './_list-rollouts.ts'
import { openServedRun } from './_open-served-run.ts'
import { planId } from './_plan-queue.ts'
import { readinessOf, type Readiness } from './_readiness.ts'
import { recoverRequests } from './_recover-requests.ts'
import { RequestBook } from './_request-book.ts'
import { journalRequest } from './_request-event.ts'
import { requestPlans } from './_request-plans.ts'
import { serveMetrics } from './_serve-metrics.ts'
import { CodecPool } from './codec-pool.ts'
import { rolloutIds, type KnownRequest } from './known-request.ts'
import type { ResultReader } from './result-reader.ts'
import { checkRequest, type RolloutRequest } from './rollout-request.ts'
import { defaultBounds, type ServeBounds } from './serve-bounds.ts'
import { serviceOptions, type ServiceOptions } from './service-options.ts'
import type { ServiceState, ServiceStatus } from './service-status.ts'

/** A request that is accepted: on disk, and bound to get a result for every rollout. */
export interface Submission {
  readonly request: KnownRequest
  readonly results: ResultReader
}

/**
 * Rollouts on request, over one environment and one model: what `millrace serve` offers, without its HTTP. A request is
 * durable before it is accepted, and a service that is opened again on the same run finishes what was accepted.
 */
export class RolloutService extends Resource {
  readonly info: RunInfo
  /** For those who pass results on as JSON. */
  readonly codec: CodecPool
  readonly metrics: MetricsHub
  readonly bounds: ServeBounds
  readonly #telemetry: Telemetry
  readonly #onResult: (record: RolloutRecord) => void
  readonly #resolved: ResolvedRun
  readonly #store: RunStore
  readonly #executor: Executor
  readonly #due: DueRollouts
  readonly #book: RequestBook
  readonly #lag = new LoopLag()
  readonly #failure = new AbortController()
  readonly #outcomes: Partial<Record<Outcome, number>> = {}
  readonly #accepted = { requests: 0, rollouts: 0 }
  readonly #groupSize: number | undefined
  #state: ServiceState = 'open'
  #nextTask = 0
  #work: Promise<void> = Promise.resolve()

  private constructor(parts: {
    readonly resolved: ResolvedRun
    readonly store: RunStore
    readonly info: RunInfo
    readonly seed: number
    readonly executor: Executor
    readonly codec: CodecPool
    readonly telemetry: Telemetry
    readonly bounds: ServeBounds
    readonly onSettled: (record: RolloutRecord) => void
  }) {
    super()
    const { resolved, store, seed, bounds } = parts
    const { config } = resolved
    this.info = { ...parts.info, notices: [...parts.info.notices, ...parts.telemetry.notices] }
    this.codec = parts.codec
    this.bounds = bounds
    this.#onResult = parts.onSettled
    this.#telemetry = parts.telemetry
    this.#resolved = resolved
    this.#store = store
    this.#book = new RequestBook(bounds, (request) => this.cancelRequest(request, 'whoever asked for it has gone'))
    this.metrics = serveMetrics(parts.telemetry, {
      store,
      executor: parts.executor,
      codec: parts.codec,
      lag: this.#lag,
      rollouts: this.#book.unsettled,
      accepted: this.#accepted,
    })
    this.#groupSize = holdsGroups(config.group) ? config.group.size : undefined
    const labels = { environment: config.environment.name, model: config.model }
    const { journal } = store
    this.#executor = parts.executor
    this.#due = new DueRollouts({
      labels,
      executor: this.#executor,
      journal,
      reader: store.reader,
      concurrency: config.concurrency,
      retries: config.retries,
      group: config.group,
      seedOf: (id, attempt) => hash32(seed, id, attempt) >>> 1,
      onAttemptStart: (rollout) => this.#onAttemptStart(rollout),
      onSettled: (record) => this.#onSettled(record),
      onAttemptEnd: () => {},
      onAttemptLost: (lost) => this.metrics.rolloutLost(lost),
    })
  }

  /** Opens the run, the workers and the codec threads, and takes up what an earlier sitting left unfinished. */
  static async open(options: ServiceOptions): Promise<RolloutService> {
    requireKnownOptions(options, serviceOptions)
    const bounds = { ...defaultBounds, ...options.bounds }
    const { resolved, opened } = await openServedRun(options)
    const { store, info, seed } = opened
    await using started = new AsyncDisposableStack()
    started.defer(() => giveUpRun(opened))
    const telemetry = started.use(startTelemetry({ env: process.env, run: info.name, metrics: true }))
    const counted = { run: info.name, metrics: true, onMetrics: (delta: MetricsDelta) => telemetry.merge(delta) }
    const executor = started.use(await openExecutor(store, resolved, options, counted))
    const codec = started.use(await CodecPool.start(store.folder))
    if (options.preflight ?? true) await executor.preflight(options.signal ?? new AbortController().signal)
    const onSettled = options.onSettled ?? (() => {})
    const service = new RolloutService({ resolved, store, info, seed, executor, codec, telemetry, bounds, onSettled })
    await service.#recover()
    service.#start()
    // From here on the service owns them.
    started.move()
    return service
  }

  /** Aborts once, with the reason, when nothing more can be run: the store or the place where rollouts run has failed. */
  get failure(): AbortSignal {
    return this.#failure.signal
  }

  /**
   * Accepts a request, or finds it accepted. The results come as they end; leaving them before the last cancels what
   * still runs, unless the request is detached or somebody else reads them too: at once, or, if the request has an id of
   * its own, unless it is asked for again in `abandonGraceMs`.
   */
  async submit(request: RolloutRequest): Promise<Submission> {
    this.#throwUnlessOpen()
    const { bounds } = this
    checkRequest(request, { maxTasks: bounds.maxTasksPerRequest, groupSize: this.#groupSize })
    const id = request.requestId ?? randomUUID()
    const attempts = request.attempts ?? this.#resolved.config.attempts
    const checked = await checkTasks({
      environment: this.#resolved.loaded.environment,
      tasks: request.tasks,
      maxTaskBytes: bounds.maxTaskBytes,
      salt: JSON.stringify([attempts, request.sampling ?? null]),
    })
    const known = this.#book.request(id)
    if (!known) {
      // Whoever gave no id cannot ask for it again.
      const graceMs = request.requestId === undefined ? 0 : bounds.abandonGraceMs
      return await this.#accept({ ...request, id, attempts, graceMs }, checked)
    }
    if (known.digest !== checked.digest) throw otherBody(id)
    if (request.isDetached) known.isDetached = true
    return { request: known, results: await this.#book.read(known, 'owner') }
  }

  /** The results of a request that was made before. Leaving them cancels nothing. */
  async results(request: KnownRequest): Promise<Submission> {
    return { request, results: await this.#book.read(request, 'onlooker') }
  }

  /** undefined if nobody made it, or it is too long ago. */
  request(id: string): KnownRequest | undefined {
    return this.#book.request(id)
  }

  rollouts(request: KnownRequest): { id: string; state: RolloutState }[] {
    return Array.from(rolloutIds(request), (id) => ({ id, state: this.#book.stateOf(id) }))
  }

  /** undefined if there is no such rollout. */
  state(rollout: string): RolloutState | undefined {
    const exists = this.#book.unsettled.has(rollout) || this.#store.reader.hasEnded(rollout)
    return exists ? this.#book.stateOf(rollout) : undefined
  }

  /** What a rollout came to, once it has ended. Read on this thread; `codec` does the same elsewhere. */
  record(rollout: string): RolloutRecord | undefined {
    return this.#store.reader.rollout(rollout)
  }

  /** Newest first, of the requests that are remembered. */
  list(filter: ListFilter, { cursor, limit }: { cursor?: string | undefined; limit: number }): Promise<RolloutPage> {
    const one = filter.request === undefined ? undefined : this.#book.request(filter.request)
    return listRollouts({
      requests: filter.request === undefined ? this.#book.requests() : one ? [one] : [],
      filter,
      cursor,
      limit,
      stateOf: (id) => this.#book.stateOf(id),
      heads: (ids) => this.codec.heads(ids),
    })
  }

  /** Ends a rollout as `cancelled`, whether it runs or waits; false if it has ended. Its result follows. */
  cancel(rollout: string, reason = 'it was cancelled'): boolean {
    const unsettled = this.#book.unsettled.get(rollout)
    if (!unsettled) return false
    if (!unsettled.cancelled) this.#due.cancel(unsettled, new MillraceError('cancelled', reason))
    return true
  }

  /** The same for all rollouts of a request that have not ended; how many those are. */
  cancelRequest(request: KnownRequest, reason?: string): number {
    const unsettled = this.#book.unsettledOf(request)
    for (const { id } of unsettled) this.cancel(id, reason)
    return unsettled.length
  }

  /** Resolves when the new workers are ready; those that are too many finish what they run. */
  async resizeWorkers(count: number): Promise<void> {
    await poolOf(this.#executor).resize(count)
  }

  /** Puts a fresh worker in each one's place, one after another; resolves when all are ready. */
  async restartWorkers(): Promise<void> {
    await poolOf(this.#executor).restart()
  }

  /** Whether a rollout that is sent now would run. */
  readiness(): Readiness {
    const hasStoreFailed = this.#store.failure.aborted
    const { takesWork } = this.#executor
    return readinessOf({ state: this.#state, hasStoreFailed, takesWork, workers: this.#executor.workers() })
  }

  status(): ServiceStatus {
    return {
      run: this.info.name,
      state: this.#state,
      queued: this.#book.unsettled.waiting,
      running: this.#book.unsettled.running,
      accepted: { ...this.#accepted },
      outcomes: { ...this.#outcomes },
      workers: this.#executor.workers(),
      models: this.#executor.models(),
      codec: this.codec.status(),
      lag: this.#lag.snapshot(),
      storeLag: this.#store.lag(),
    }
  }

  /** Accepts and starts nothing new; resolves when what ran has ended. What waited runs when the service is opened again. */
  async drain(): Promise<void> {
    if (this.#state === 'open') this.#state = 'draining'
    this.#due.drain()
    await this.#work
  }

  /** Stops what runs: those rollouts are unfinished, and go on when the service is opened again. */
  protected async onClose(): Promise<void> {
    const end = this.#state === 'draining' ? 'drained' : 'stopped'
    if (this.#state !== 'failed') this.#state = 'closed'
    const reason = new MillraceError('closed', 'the server is closing; ask again with the same request id')
    this.#due.stop(reason)
    await this.#work
    await using parts = new AsyncDisposableStack()
    parts.use(this.#store)
    parts.defer(async () => {
      if (!this.#store.failure.aborted) await this.#store.finish('unfinished', { end })
    })
    parts.use(this.#telemetry)
    parts.use(this.#executor)
    parts.use(this.codec)
    parts.use(this.#lag)
  }

  #start(): void {
    const { failure } = this.#store
    const onStoreFailure = (): void => this.#due.stop(MillraceError.from(failure.reason, 'store_failed'))
    failure.addEventListener('abort', onStoreFailure, { once: true })
    this.#work = this.#due.run().then(
      () => (failure.aborted ? this.#fail(failure.reason) : this.#book.end(unfinished())),
      (error: unknown) => this.#fail(error),
    )
  }

  #fail(error: unknown): void {
    this.#state = 'failed'
    this.#book.end(error)
    this.#failure.abort(error)
  }

  #throwUnlessOpen(): void {
    if (this.#state === 'open') return
    if (this.failure.aborted) throw MillraceError.from(this.failure.reason, 'internal')
    throw new MillraceError('closed', `the server is ${this.#state} and takes no more requests; try another, or later`)
  }

  async #accept(
    asked: Pick<RolloutRequest, 'sampling' | 'isDetached'> &
      Pick<KnownRequest, 'id' | 'attempts'> & { graceMs: number },
    { tasks, digest, bytes }: CheckedTasks,
  ): Promise<Submission> {
    const { id, attempts, sampling, isDetached = false, graceMs } = asked
    this.#throwUnlessOpen()
    this.#book.unsettled.requireRoom(tasks.length * attempts, bytes * attempts)
    const firstTask = this.#nextTask
    this.#nextTask += tasks.length
    const request: KnownRequest = { id, digest, firstTask, tasks: tasks.length, attempts, isDetached, at: Date.now() }
    const due = requestPlans(request, tasks, sampling)
    const accepted = journalRequest(this.#store.journal, request, { tasks, sampling })
    this.#book.enter(request, due, { accepted, graceMs })
    let results: ResultReader
    try {
      results = await this.#book.read(request, 'owner')
    } catch (error) {
      this.#book.strike(request)
      throw error
    }
    this.#accepted.requests += 1
    this.#accepted.rollouts += due.length
    for (const { plan } of due) this.#enqueue(plan)
    return { request, results }
  }

  #enqueue(plan: PlannedRollout): void {
    const unsettled = this.#book.unsettled.get(planId(plan))
    if (unsettled) this.#due.add(unsettled, plan)
  }

  #onAttemptStart(rollout: string): MillraceError | undefined {
    const unsettled = this.#book.unsettled.get(rollout)
    if (!unsettled || unsettled.cancelled) return unsettled?.cancelled
    this.#book.unsettled.start(unsettled)
    return undefined
  }

  #onSettled(record: RolloutRecord): void {
    this.#outcomes[record.outcome] = (this.#outcomes[record.outcome] ?? 0) + 1
    this.metrics.rolloutSettled(record)
    this.#onResult(record)
    this.#book.settle(record)
  }

  /** Every request of earlier sittings is known again, and what they left unfinished waits for its place. */
  async #recover(): Promise<void> {
    const { config, loaded } = this.#resolved
    const requests = recoverRequests(this.#store.reader, { config, environment: loaded.environment })
    for (let next = await requests.next(); ; next = await requests.next()) {
      if (next.done) {
        this.#nextTask = next.value
        return
      }
      const { request, unfinished: due } = next.value
      this.#book.enter(request, due, { accepted: Promise.resolve(), graceMs: this.bounds.abandonGraceMs })
      for (const { plan } of due) this.#enqueue(plan)
    }
  }
}

function poolOf(executor: Executor): WorkerPool {
  if (executor instanceof WorkerPool) return executor
  throw new MillraceError('config_invalid', 'this server has no workers: start it with --workers')
}

function unfinished(): MillraceError {
  const why = 'the server stopped before this rollout had ended; ask again with the same request id'
  return new MillraceError('closed', why)
}

function otherBody(id: string): MillraceError {
  return new MillraceError(
    'run_mismatch',
    `request ${id} was made before with another body; the same id stands for the same tasks, attempts and sampling`,
    { data: { requestId: id } },
  )
}
