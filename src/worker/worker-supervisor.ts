import { availableParallelism } from 'node:os'
import type { MessagePort } from 'node:worker_threads'
import { MillraceError } from '../errors/index.ts'
import { SharedLimits, type LimitChange, type ModelStatus } from '../inference/index.ts'
import { backoffMs, Resource, sleep } from '../kit/index.ts'
import type { BlockedLoop, OffloadStatus, WorkerStatus } from '../rollout/index.ts'
import type { MetricsDelta } from '../telemetry/index.ts'
import type { ToolServerStatus } from '../tools/index.ts'
import { CallCounts } from './_call-counts.ts'
import { serversTogether, withUnderWay } from './_under-way.ts'
import { PoolLimits } from './_pool-limits.ts'
import { ProcessChannel } from './_process-channel.ts'
import { WorkerSlot } from './_worker-slot.ts'
import { ThreadChannel } from './_thread-channel.ts'
import { maxIsolated, IsolatedWorkers, type IsolatedWorker } from './_isolated-workers.ts'
import { chooseWorker } from './choose-worker.ts'
import { ConsecutiveFailures } from './consecutive-failures.ts'
import { PoolWorker, type WorkerDeath } from './pool-worker.ts'
import { resolveSupervision, type Supervision } from './supervision.ts'
import type { WorkerStart } from './worker-messages.ts'

export interface WorkerSupervisorOptions {
  readonly size: number
  readonly kind: 'thread' | 'process'
  readonly start: Omit<WorkerStart, 'workers'>
  /** A new port to the journal's writer, for one worker. */
  readonly connectJournal: () => MessagePort
  readonly supervision?: Partial<Supervision>
  /** A limit moved because of what processes have learned; threads journal their changes by themselves. */
  readonly onLimitChange?: (change: LimitChange) => void
  /** Called with what holds up a worker's loop. */
  readonly onBlocked?: (blocked: BlockedLoop) => void
  /** Called with what a worker counted since its last report, if `start.telemetry` asks for that. */
  readonly onMetrics?: (delta: MetricsDelta) => void
}

const tickMs = 250
const startBackoff = { firstMs: 200, maxMs: 5_000, factor: 3 } as const
/** A slot has two workers at most: one that takes work, and the one before it, which finishes its own. */
const workersPerSlot = 2
/** The most workers of a pool: each of them needs a place in the shared limits. */
export const maxWorkers = Math.floor((SharedLimits.maxSlots - maxIsolated) / workersPerSlot)
/** How large a pool can become that began small: a place costs a little, even while no worker has it. */
const mostGrowth = Math.min(2 * Math.max(4, availableParallelism()), maxWorkers)

/** Starts the workers of a pool, watches them, and replaces those that die or wear out. */
export class WorkerSupervisor extends Resource {
  readonly #options: WorkerSupervisorOptions
  readonly #onDeath: (death: WorkerDeath) => void
  readonly #supervision: Supervision
  readonly #maxSize: number
  readonly #limits: PoolLimits
  readonly #slots: WorkerSlot[] = []
  readonly #isolated: IsolatedWorkers
  /** All workers that are not gone: in their slots, starting, finishing what they run, and in quarantine. */
  readonly #workers = new Set<PoolWorker>()
  readonly #failures = new ConsecutiveFailures()
  /** How often workers that are gone have asked models. */
  readonly #past = new CallCounts()
  /** Tool servers that were open on some worker: as many as the environment has. */
  readonly #openedServers = new Set<string>()
  /** Slots whose worker is to be replaced because it is worn, or has more than its share of the machine. */
  readonly #renewing = new Set<WorkerSlot>()
  /** Work in the background that the close waits for: a few per worker. */
  readonly #chores = new Set<Promise<void>>()
  readonly #ticker: NodeJS.Timeout
  #lastTickAt = performance.now()
  #hasStarted = false
  #change = Promise.withResolvers<void>()
  #operation: Promise<void> = Promise.resolve()
  #failure: MillraceError | undefined

  private constructor(options: WorkerSupervisorOptions, onDeath: (death: WorkerDeath) => void) {
    super()
    this.#options = options
    this.#onDeath = onDeath
    this.#supervision = resolveSupervision(options.supervision)
    this.#maxSize = Math.max(options.size, mostGrowth)
    const { models, settings } = options.start
    this.#limits = new PoolLimits({
      models,
      judgeConcurrency: settings.judgeConcurrency,
      places: workersPerSlot * this.#maxSize + maxIsolated,
      onLimitChange: (change) => options.onLimitChange?.(change),
    })
    this.#isolated = new IsolatedWorkers(this.#startWorker, this.announce)
    this.#ticker = setInterval(this.#tick, tickMs)
  }

  /**
   * Resolves when every worker has loaded the environment, which they do all at once; rejects if one cannot. `onDeath` is
   * called for each death before the callers whose calls it lost go on.
   */
  static async start(
    options: WorkerSupervisorOptions,
    onDeath: (death: WorkerDeath) => void,
  ): Promise<WorkerSupervisor> {
    const supervisor = new WorkerSupervisor(options, onDeath)
    try {
      await supervisor.#addSlots(Array.from({ length: options.size }, (_, index) => index + 1))
      supervisor.#hasStarted = true
      return supervisor
    } catch (error) {
      await supervisor.close()
      throw error
    }
  }

  /** Resolves with the next change to which workers take work, or to whether any ever will. */
  get changed(): Promise<void> {
    return this.#change.promise
  }

  /** Wakes all callers that wait for a change. */
  readonly announce = (): void => {
    for (const worker of this.#workers) {
      if (!worker.isGone) continue
      this.#workers.delete(worker)
      this.#past.add(worker.models)
    }
    const { resolve } = this.#change
    this.#change = Promise.withResolvers()
    resolve()
  }

  /** Whether a worker takes work now. Workers in quarantine do not count: they take only their cohort's. */
  get takesWork(): boolean {
    return !this.isClosed && !this.#failure && this.choose(undefined) !== undefined
  }

  /** Throws if no worker will take work any more. */
  throwIfUnable(): void {
    this.throwIfClosed()
    if (this.#failure) throw this.#failure
  }

  /** The worker that should take a call; undefined while none can. */
  choose(task: number | undefined): PoolWorker | undefined {
    return chooseWorker(this.#inSlots(), task)
  }

  /** A worker for a cohort alone; undefined while there are as many of those as may be. The caller owes a `giveBackIsolated`. */
  takeIsolated(cohort: number): IsolatedWorker | undefined {
    return this.#isolated.take(cohort)
  }

  giveBackIsolated(isolated: IsolatedWorker): void {
    this.#track(this.#isolated.giveBack(isolated))
  }

  /** Called when a call ended as it should: whatever died before, not everything is broken. */
  noteEnd(): void {
    this.#failures.noteEnd()
  }

  models(): readonly ModelStatus[] {
    const models = this.#limits.status()
    // Threads count in memory that they share, so the limits know all.
    if (this.#options.kind === 'thread') return models.map((model) => this.#withReason(model))
    const counts = new CallCounts(this.#past)
    const reports = Array.from(this.#workers, (worker) => worker.models)
    for (const report of reports) counts.add(report)
    return models.map((model) => this.#withReason(counts.appliedTo(withUnderWay(model, reports.flat()))))
  }

  /** Adds why calls are parked, which only the worker knows in which one of them failed. */
  #withReason(model: ModelStatus): ModelStatus {
    if (model.parked === 0) return model
    for (const worker of this.#workers) {
      const parkedBecause = worker.models.find(({ name }) => name === model.name)?.parkedBecause
      if (parkedBecause !== undefined) return { ...model, parkedBecause }
    }
    return model
  }

  offload(): readonly OffloadStatus[] {
    return Array.from(this.#workers, (worker) => worker.offload).flat()
  }

  servers(): readonly ToolServerStatus[] {
    return serversTogether(Array.from(this.#workers, (worker) => worker.servers).flat())
  }

  /** Workers by slot; those in quarantine have ids below zero. */
  statuses(): readonly WorkerStatus[] {
    return Array.from(this.#workers, (worker) => worker.status()).toSorted((one, other) => one.id - other.id)
  }

  /** Resolves when new workers are ready. Surplus workers finish what they run, meanwhile and afterwards. */
  async resize(size: number): Promise<void> {
    if (!Number.isInteger(size) || size < 1 || size > this.#maxSize) {
      throw new MillraceError('config_invalid', `this pool can have 1 to ${this.#maxSize} workers, not ${size}`)
    }
    await this.#exclusively(async () => {
      const missing = Array.from({ length: Math.max(0, size - this.#slots.length) }, (_, index) => {
        return this.#slots.length + 1 + index
      })
      this.#requireRoomAt(missing)
      for (const slot of this.#slots.splice(size)) this.#retire(slot.giveUp())
      await this.#addSlots(missing)
    })
  }

  /**
   * Replaces every worker by a fresh one, one after another: there are never fewer than before. Resolves when all are ready;
   * the old ones finish what they run.
   */
  async restart(): Promise<void> {
    const slots = [...this.#slots]
    this.#requireRoomAt(slots.map(({ id }) => id))
    for (const slot of slots) await this.#renew(slot)
  }

  protected async onClose(): Promise<void> {
    clearInterval(this.#ticker)
    this.announce()
    await Promise.all(Array.from(this.#workers, (worker) => worker.close()))
    while (this.#chores.size > 0) await Promise.all(this.#chores)
    await this.#limits.close()
  }

  *#inSlots(): Generator<PoolWorker, void, void> {
    for (const { worker } of this.#slots) if (worker) yield worker
  }

  async #addSlots(ids: readonly number[]): Promise<void> {
    const slots = ids.map((id) => new WorkerSlot(id, this.#startWorker, this.announce))
    this.#slots.push(...slots)
    await Promise.all(slots.map((slot) => slot.fill()))
  }

  readonly #startWorker = async (id: number, restarts: number): Promise<PoolWorker> => {
    for (;;) {
      this.throwIfUnable()
      const worker = this.#open(id, restarts)
      try {
        await worker.ready
        // Before it is given work: a server that is away must not look to it as if it had never been there.
        worker.tellOpened(this.#openedServers)
        this.#failures.noteStart()
        return worker
      } catch (thrown) {
        await worker.close()
        this.throwIfClosed()
        // A failure before anything has run is for the user to correct; later it may pass.
        if (!this.#hasStarted) throw thrown
        const reason = this.#failures.noteFailedStart(MillraceError.from(thrown, 'worker_lost'))
        if (reason) this.#fail(reason)
        else await sleep(backoffMs(startBackoff, this.#failures.failedStarts), this.closedSignal)
      }
    }
  }

  #open(id: number, restarts: number): PoolWorker {
    const { kind, start, connectJournal, onBlocked, onMetrics } = this.#options
    const workers = this.#slots.length
    const limits = this.#limits.take(workers)
    const journal = connectJournal()
    const worker = new PoolWorker({
      id,
      restarts,
      open: (options) => (kind === 'thread' ? new ThreadChannel(options) : new ProcessChannel(options)),
      start: { ...start, workers },
      journal,
      limits,
      supervision: this.#supervision,
      onBlocked: ({ lagMs, blockedBy }) => onBlocked?.({ worker: id, lagMs, blockedBy }),
      onMetrics: (delta) => onMetrics?.(delta),
      onChange: this.announce,
      onDeath: this.#onWorkerDeath,
    })
    this.#workers.add(worker)
    void worker.exited.then(() => limits.giveBack())
    return worker
  }

  #noteServers(worker: PoolWorker): void {
    for (const { server, state } of worker.servers) if (state !== 'unopened') this.#openedServers.add(server)
  }

  readonly #onWorkerDeath = (worker: PoolWorker, death: WorkerDeath): void => {
    this.#onDeath(death)
    // Its last report may have come after the last tick.
    this.#noteServers(worker)
    this.#isolated.clear(worker)
    const slot = this.#slots.find((each) => each.clear(worker))
    if (slot) this.#track(slot.fill())
    const reason = death.isBlameless ? undefined : this.#failures.noteDeath(death.error)
    if (reason) this.#fail(reason)
    // The worker may be given up, but not gone: it is waited for until it is.
    this.#track(worker.close())
    this.announce()
  }

  readonly #tick = (): void => {
    const now = performance.now()
    // If this loop was held up, the workers' messages still wait in its queue: the silence is not theirs.
    const elapsedMs = Math.min(now - this.#lastTickAt, 2 * tickMs)
    this.#lastTickAt = now
    for (const worker of this.#workers) {
      worker.tick(elapsedMs)
      this.#noteServers(worker)
    }
    for (const worker of this.#workers) worker.tellOpened(this.#openedServers)
    for (const slot of this.#slots) {
      const { worker } = slot
      // A worker divides the machine by the number of workers it was started with; if there are more now, it is replaced.
      const isDue = worker && (worker.isWorn || worker.peers < this.#slots.length)
      if (!isDue || this.#renewing.has(slot) || this.#isFull(slot.id)) continue
      this.#renewing.add(slot)
      this.#track(this.#renew(slot).finally(() => this.#renewing.delete(slot)))
    }
  }

  async #renew(slot: WorkerSlot): Promise<void> {
    await this.#exclusively(async () => {
      // The slot was renewed since that was asked for: its worker is fresh.
      if (this.#isFull(slot.id)) return
      this.#retire(await slot.renew())
    })
  }

  /** Retires a worker. Only the close of all workers waits for that: it may take minutes. */
  #retire(worker: PoolWorker | undefined): void {
    if (worker) this.#track(worker.retire())
  }

  #isFull(id: number): boolean {
    let count = 0
    for (const worker of this.#workers) if (worker.id === id && !worker.isGone) count += 1
    return count >= workersPerSlot
  }

  #requireRoomAt(ids: readonly number[]): void {
    const full = ids.find((id) => this.#isFull(id))
    if (full === undefined) return
    throw new MillraceError(
      'overloaded',
      `worker ${full} was replaced already, and the one before it still finishes what it runs: try again when that is gone`,
    )
  }

  /** Runs changes to the set of workers one after another; there are few. */
  #exclusively(change: () => Promise<void>): Promise<void> {
    const changed = this.#operation.then(() => {
      this.throwIfUnable()
      return change()
    })
    this.#operation = changed.catch(() => {})
    return changed
  }

  #track(work: Promise<void>): void {
    const chore = work
      .catch((error: unknown) => {
        if (!this.isClosed) this.#fail(MillraceError.from(error, 'worker_lost'))
      })
      .finally(() => this.#chores.delete(chore))
    this.#chores.add(chore)
  }

  #fail(reason: MillraceError): void {
    this.#failure ??= reason
    this.announce()
  }
}
