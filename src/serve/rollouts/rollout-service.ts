import type { Environment } from '../../env/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { requireOptions, type RunInfo } from '../../eval/index.ts'
import { derivedSeed, onAbort, Resource } from '../../kit/index.ts'
import { RunningEpisode } from '../../nemo-gym/index.ts'
import type { Executor, PlannedRollout, SchedulerOptions } from '../../rollout/index.ts'
import type { Outcome, RolloutRecord } from '../../schema/index.ts'
import type { MetricsHub, ProcessCounts } from '../../telemetry/index.ts'
import { WorkerPool } from '../../worker/index.ts'
import { PendingRollouts, planId } from './pending-rollouts.ts'
import { listRollouts, type ListFilter, type RolloutPage } from './list-rollouts.ts'
import {
  closeServiceParts,
  openServiceParts,
  readinessOf,
  type ServeBounds,
  serveMetrics,
  type ServiceOptions,
  serviceOptionsSchema,
  type ServiceParts,
  type ServiceState,
  type ServiceStatus,
} from './service-parts.ts'
import { ServedSessions } from './served-sessions.ts'
import type { Readiness } from '../http/status-routes.ts'
import { KnownRequests } from '../requests/known-requests.ts'
import { RequestIntake, type Submission } from '../requests/request-intake.ts'
import { journalUndelivered } from '../requests/request-journal.ts'
import type { CodecPool } from '../codec/codec-pool.ts'
import {
  listedRequest,
  listRequests,
  rolloutIds,
  type KnownRequest,
  type ListedRequest,
  type RequestPage,
  type RolloutState,
} from '../requests/known-request.ts'
import type { RolloutRequest } from '../requests/request-body.ts'

const unfinished = 'the server stopped before this rollout had ended; ask again with the same request id'

/**
 * Rollouts on request, over one environment and one model: what `millrace serve` offers, without its HTTP. A request is
 * durable before it is accepted, and a service that is opened again on the same run finishes what was accepted.
 */
export class RolloutService extends Resource {
  readonly info: RunInfo
  readonly codec: CodecPool
  readonly metrics: MetricsHub
  readonly bounds: ServeBounds
  readonly #parts: ServiceParts
  readonly #requests: KnownRequests
  readonly #due: PendingRollouts
  readonly #intake: RequestIntake
  readonly #onResult: NonNullable<ServiceOptions['onSettled']>
  readonly #failure = new AbortController()
  readonly #outcomes: Partial<Record<Outcome, number>> = {}
  #sessions: ServedSessions | undefined
  #state: ServiceState = 'open'
  /** What ran when it was drained has ended by itself. */
  #hasDrained = false
  #work: Promise<void> = Promise.resolve()

  private constructor(parts: ServiceParts, onResult: NonNullable<ServiceOptions['onSettled']>) {
    super()
    const { info, telemetry, bounds, codec } = parts
    this.info = { ...info, notices: [...info.notices, ...telemetry.notices] }
    this.codec = codec
    this.bounds = bounds
    this.#parts = parts
    this.#onResult = onResult
    this.#requests = new KnownRequests(bounds, (request) => this.cancelRequest(request, 'its client has disconnected'))
    this.#due = dueRollouts(parts, {
      onAttemptStart: (rollout) => this.#onAttemptStart(rollout),
      onSettled: (record) => this.#onSettled(record),
      onLeft: (plan) => this.#onLeft(plan),
      onAttemptLost: (lost) => this.metrics.rolloutLost(lost),
    })
    const requireOpen = (): void => this.#throwUnlessOpen()
    this.#intake = new RequestIntake({ ...parts, requests: this.#requests, due: this.#due, requireOpen })
    this.metrics = serveMetrics(parts, { rollouts: this.#requests.unsettled, accepted: this.#intake.accepted })
  }

  /**
   * Opens the run, the workers and the codec threads, and takes up what an earlier launch left unfinished. A service among others
   * leaves the counting of calls to `shared`.
   */
  static async open(options: ServiceOptions, shared?: ProcessCounts): Promise<RolloutService> {
    requireOptions(serviceOptionsSchema, options, 'RolloutService.open()')
    await using started = new AsyncDisposableStack()
    const parts = await openServiceParts(options, started, shared)
    const service = new RolloutService(parts, options.onSettled ?? (() => {}))
    await service.#intake.recover()
    service.#start()
    started.move()
    return service
  }

  get environment(): Environment {
    return this.#parts.resolved.loaded.environment
  }

  /** The environment for agents that run somewhere else. Made when it is asked for first. */
  get sessions(): ServedSessions {
    return (this.#sessions ??= new ServedSessions({ ...this.#parts, requireOpen: () => this.#throwUnlessOpen() }))
  }

  /** The name of the model of the rollouts. */
  get model(): string {
    return this.#parts.resolved.config.model
  }

  /** Whether rollouts have the tokens that rows are made of. */
  get capturesTokens(): boolean {
    return this.#parts.resolved.config.captureTokens
  }

  /** Aborts once, with the reason, when nothing more can be run: the store or the place where rollouts run has failed. */
  get failure(): AbortSignal {
    return this.#failure.signal
  }

  /**
   * Accepts a request, or finds it accepted. Leaving its results before the last cancels what still runs, unless it is detached,
   * somebody else reads them, or, with an id of its own, it is asked for again in `abandonGraceMs`.
   */
  submit(request: RolloutRequest): Promise<Submission> {
    return this.#intake.submit(request)
  }

  /** The results of a request that was made before. Leaving them cancels nothing. */
  async results(request: KnownRequest): Promise<Submission> {
    return { request, results: await this.#requests.read(request, 'onlooker') }
  }

  request(id: string): KnownRequest | undefined {
    return this.#requests.request(id)
  }

  /** Whether a request with this id would get rollouts: new ones, or some that go on. Not if they have ended, or are being cancelled. */
  takes(id: string): boolean {
    const known = this.request(id)
    return !known || this.#requests.unsettledOf(known).some(({ cancelled }) => !cancelled)
  }

  /** Newest first, of the requests with such ids: those that go on, and those whose results nobody has got. Not what was cancelled. */
  undelivered(prefix: string): KnownRequest[] {
    const mayCome = (request: KnownRequest): boolean =>
      request.isUndelivered === true || this.#requests.unsettledOf(request).length > 0
    return this.#requests
      .requests()
      .filter((request) => request.id.startsWith(prefix) && !request.outcomes.cancelled && mayCome(request))
  }

  /** Keeps for the next launch whether the results of a request still have to be handed over. */
  noteUndelivered(id: string, isUndelivered: boolean): void {
    const known = this.request(id)
    if (!known || (known.isUndelivered ?? false) === isUndelivered) return
    known.isUndelivered = isUndelivered
    journalUndelivered(this.#parts.store.journal, id, isUndelivered)
  }

  describeRequest(request: KnownRequest): ListedRequest {
    return listedRequest(request, this.#requests.runningOf(request))
  }

  listRequests(page: { state?: RolloutState; cursor?: string; limit: number }): RequestPage {
    const { state, cursor, limit } = page
    return listRequests({
      requests: this.#requests.requests(),
      state,
      cursor,
      limit,
      runningOf: (request) => this.#requests.runningOf(request),
    })
  }

  rollouts(request: KnownRequest): { id: string; state: RolloutState }[] {
    return Array.from(rolloutIds(request), (id) => ({ id, state: this.#requests.stateOf(id) }))
  }

  state(rollout: string): RolloutState | undefined {
    const exists = this.#requests.unsettled.has(rollout) || this.#parts.store.reader.hasEnded(rollout)
    return exists ? this.#requests.stateOf(rollout) : undefined
  }

  /** The result of a rollout, once it has ended. Read on this thread; `codec` does the same elsewhere. */
  record(rollout: string): RolloutRecord | undefined {
    return this.#parts.store.reader.rollout(rollout)
  }

  /** Calls `listener` with the attempt whenever messages of this rollout have become durable. */
  watch(rollout: string, listener: (attempt: number) => void): Disposable {
    return this.#parts.store.watch(rollout, listener)
  }

  /** What a rollout has said so far, as items of Responses. */
  runningEpisode(rollout: string): RunningEpisode {
    return new RunningEpisode(this.#parts.store.reader, rollout)
  }

  list(filter: ListFilter, { cursor, limit }: { cursor?: string | undefined; limit: number }): Promise<RolloutPage> {
    return listRollouts({
      requests: this.#requests.requests(filter.request),
      filter,
      cursor,
      limit,
      stateOf: (id) => this.#requests.stateOf(id),
      heads: (ids) => this.codec.heads(ids),
    })
  }

  /** Ends a rollout as `cancelled`, whether it runs or waits; false if it has ended. Its result follows. */
  cancel(rollout: string, reason = 'it was cancelled'): boolean {
    const unsettled = this.#requests.unsettled.get(rollout)
    if (!unsettled) return false
    if (!unsettled.cancelled) this.#due.cancel(unsettled, new MillraceError('cancelled', reason))
    return true
  }

  /** The same for all rollouts of a request that have not ended; how many those are. */
  cancelRequest(request: KnownRequest, reason?: string): number {
    const unsettled = this.#requests.unsettledOf(request)
    for (const { id } of unsettled) this.cancel(id, reason)
    return unsettled.length
  }

  /** Resolves when the new workers are ready; those that are too many finish what they run. */
  async resizeWorkers(count: number): Promise<void> {
    await poolOf(this.#parts.executor).resize(count)
  }

  /** Puts a fresh worker in each one's place, one after another; resolves when all are ready. */
  async restartWorkers(): Promise<void> {
    await poolOf(this.#parts.executor).restart()
  }

  readiness(): Readiness {
    const { store, executor } = this.#parts
    return readinessOf({
      state: this.#state,
      hasStoreFailed: store.failure.aborted,
      takesWork: executor.takesWork,
      workers: executor.workers(),
    })
  }

  status(): ServiceStatus {
    const { store, executor, codec, lag } = this.#parts
    return {
      run: this.info.name,
      state: this.#state,
      queued: this.#requests.unsettled.waiting,
      running: this.#requests.unsettled.running,
      accepted: { ...this.#intake.accepted },
      outcomes: { ...this.#outcomes },
      workers: executor.workers(),
      models: executor.models(),
      servers: executor.servers(),
      codec: codec.status(),
      lag: lag.snapshot(),
      storeLag: store.lag(),
    }
  }

  /** Accepts and starts nothing new; resolves when what ran has ended. What waited runs when the service is opened again. */
  async drain(): Promise<void> {
    if (this.#state === 'open') this.#state = 'draining'
    this.#due.drain()
    await this.#work
    // Closed or failed meanwhile, it has abandoned what ran.
    if (this.#state === 'draining') this.#hasDrained = true
  }

  /** Stops what runs: those rollouts are unfinished, and go on when the service is opened again. */
  protected async onClose(): Promise<void> {
    const end = this.#hasDrained ? 'drained' : 'stopped'
    if (this.#state !== 'failed') this.#state = 'closed'
    const reason = new MillraceError('closed', 'the server is closing; ask again with the same request id')
    this.#due.stop(reason)
    await this.#sessions?.close(reason)
    await this.#work
    await closeServiceParts(this.#parts, end)
  }

  #start(): void {
    const { failure } = this.#parts.store
    onAbort(failure, { handleEvent: () => this.#due.stop(MillraceError.from(failure.reason, 'store_failed')) })
    this.#work = this.#due.run().then(
      () =>
        failure.aborted ? this.#fail(failure.reason) : this.#requests.end(new MillraceError('closed', unfinished)),
      (error: unknown) => this.#fail(error),
    )
  }

  #fail(error: unknown): void {
    this.#state = 'failed'
    this.#requests.end(error)
    this.#failure.abort(error)
  }

  #throwUnlessOpen(): void {
    if (this.#state === 'open') return
    if (this.failure.aborted) throw MillraceError.from(this.failure.reason, 'internal')
    throw new MillraceError(
      'closed',
      `the server is ${this.#state} and accepts no more requests; try another server, or try again later`,
    )
  }

  #onAttemptStart(rollout: string): MillraceError | undefined {
    const unsettled = this.#requests.unsettled.get(rollout)
    if (!unsettled || unsettled.cancelled) return unsettled?.cancelled
    this.#parts.keepChanges()
    this.#requests.unsettled.start(unsettled)
    return undefined
  }

  /** While others still run, it can be cancelled as all that waits. */
  #onLeft(plan: PlannedRollout): void {
    const unsettled = this.#requests.unsettled.get(planId(plan))
    if (!unsettled) return
    this.#requests.unsettled.giveBack(unsettled)
    this.#due.add(unsettled, plan)
  }

  #onSettled(record: RolloutRecord): void {
    this.#outcomes[record.outcome] = (this.#outcomes[record.outcome] ?? 0) + 1
    this.metrics.rolloutSettled(record)
    this.#onResult(record, this.info.name)
    this.#requests.settle(record)
  }
}

function dueRollouts(
  { resolved, seed, store, executor, keepChanges }: ServiceParts,
  listeners: Pick<SchedulerOptions, 'onAttemptStart' | 'onSettled' | 'onLeft' | 'onAttemptLost'>,
): PendingRollouts {
  const { environment, model, concurrency, retries, group } = resolved.config
  return new PendingRollouts({
    ...listeners,
    onGroupScore: keepChanges,
    onAttemptEnd: () => {},
    isAwaited: true,
    labels: { environment: environment.name, model },
    executor,
    journal: store.journal,
    reader: store.reader,
    concurrency,
    retries,
    group,
    seedOf: (id, attempt) => derivedSeed(seed, id, attempt),
  })
}

function poolOf(executor: Executor): WorkerPool {
  if (executor instanceof WorkerPool) return executor
  throw new MillraceError('config_invalid', 'this server has no workers: start it with --workers (workers)')
}
