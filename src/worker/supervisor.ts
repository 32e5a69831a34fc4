import { availableParallelism } from 'node:os'
import type { MessagePort } from 'node:worker_threads'
import { MillraceError } from '../errors/index.ts'
import { SharedLimits, type LimitChange, type LimitLease, type ModelStatus } from '../inference/index.ts'
import { backoffMs, Resource, sleep } from '../kit/index.ts'
import { type BlockedLoop, judgePermits, type OffloadStatus, type WorkerStatus } from '../rollout/index.ts'
import type { MetricsDelta } from '../telemetry/index.ts'
import type { ToolServerStatus } from '../tools/index.ts'
import { reportedModel, serversTogether } from './pool-status.ts'
import { ProcessChannel, ThreadChannel } from './channel/channels.ts'
import { chooseWorker, type IsolatedWorker, IsolatedWorkers, maxIsolated, WorkerSlot } from './slots.ts'
import { ConsecutiveFailures, resolveSupervision, type Supervision } from './supervision.ts'
import { PoolWorker, type WorkerDeath } from './worker.ts'
import type { WorkerStart } from './channel/channel.ts'

export interface WorkerPoolOptions {
  readonly size: number
  readonly kind: 'thread' | 'process'
  readonly start: Omit<WorkerStart, 'workers'>
  readonly connectJournal: () => MessagePort
  readonly supervision?: Partial<Supervision>
  /** A limit moved because of what processes have learned; threads journal their changes by themselves. */
  readonly onLimitChange?: (change: LimitChange) => void
  readonly onBlocked?: (blocked: BlockedLoop) => void
  /** Called with what a worker counted since its last report, if `start.telemetry` asks for that. */
  readonly onMetrics?: (delta: MetricsDelta) => void
}

const tickMs = 250
const startBackoff = { firstMs: 200, maxMs: 5_000, factor: 3 } as const
/** A slot has two workers at most: one that takes work, and the one before it, which finishes its own. */
const workersPerSlot = 2
/** The most workers of a pool: each of them needs a lease of the shared limits. */
export const maxWorkers = Math.floor((SharedLimits.maxLeases - maxIsolated) / workersPerSlot)
/** How large a pool can become that began small: a place costs a little, even while no worker has it. */
const mostGrowth = Math.min(2 * Math.max(4, availableParallelism()), maxWorkers)

/** Starts the workers of a pool, watches them, and replaces those that die or wear out. */
export abstract class WorkerSupervisor extends Resource {
  readonly #options: WorkerPoolOptions
  readonly #supervision: Supervision
  readonly #maxSize: number
  /** The limits of the models, which hold for all workers of the pool together. */
  readonly #limits: SharedLimits
  readonly #slots: WorkerSlot[] = []
  readonly #isolated: IsolatedWorkers
  /** All workers that are not gone: in their slots, starting, finishing what they run, and in quarantine. */
  readonly #workers = new Set<PoolWorker>()
  readonly #failures = new ConsecutiveFailures()
  /** How often workers that are gone have asked models, by model. */
  readonly #past = new Map<string, ModelStatus>()
  /** Tool servers that were open on some worker: as many as the environment has. */
  readonly #openedServers = new Set<string>()
  /** Slots whose worker is to be replaced because it is due for recycling, or has more than its share of the machine. */
  readonly #renewing = new Set<WorkerSlot>()
  /** Work in the background that the close waits for: a few per worker. */
  readonly #chores = new Set<Promise<void>>()
  readonly #ticker: NodeJS.Timeout
  #lastTickAt = performance.now()
  #hasStarted = false
  #change = Promise.withResolvers<void>()
  #operation: Promise<void> = Promise.resolve()
  #failure: MillraceError | undefined

  protected constructor(options: WorkerPoolOptions) {
    super()
    this.#options = options
    this.#supervision = resolveSupervision(options.supervision)
    this.#maxSize = Math.max(options.size, mostGrowth)
    const { models, settings } = options.start
    this.#limits = new SharedLimits(models, {
      maxLeases: workersPerSlot * this.#maxSize + maxIsolated,
      permits: { [judgePermits]: settings.judgeConcurrency },
      onLimitChange: (change) => options.onLimitChange?.(change),
    })
    this.#isolated = new IsolatedWorkers(this.#startWorker, this.#announce)
    this.#ticker = setInterval(this.#tick, tickMs)
  }

  /** Called before the callers whose calls are lost go on. */
  protected abstract onDeath(death: WorkerDeath): void

  /** Resolves when every worker has loaded the environment, which they do all at once; closes all if one cannot. */
  protected async startWorkers(): Promise<void> {
    try {
      await this.#addSlots(Array.from({ length: this.#options.size }, (_, index) => index + 1))
      this.#hasStarted = true
    } catch (error) {
      await this.close()
      throw error
    }
  }

  /** Resolves with the next change to which workers take work, or to whether any ever will. */
  protected get changed(): Promise<void> {
    return this.#change.promise
  }

  readonly #announce = (): void => {
    for (const worker of this.#workers) {
      if (!worker.isGone) continue
      this.#workers.delete(worker)
      for (const { name, limit, calls, tries } of worker.report.models) {
        const before = this.#past.get(name) ?? { calls: 0, tries: 0 }
        const sums = { calls: before.calls + calls, tries: before.tries + tries }
        this.#past.set(name, { name, limit, inFlight: 0, waiting: 0, parked: 0, ...sums })
      }
    }
    const { resolve } = this.#change
    this.#change = Promise.withResolvers()
    resolve()
  }

  /** Whether a worker takes work now. Workers in quarantine do not count: they take only their cohort's. */
  get takesWork(): boolean {
    return !this.isClosed && !this.#failure && this.choose(undefined) !== undefined
  }

  protected throwIfUnable(): void {
    this.throwIfClosed()
    if (this.#failure) throw this.#failure
  }

  protected choose(task: number | undefined): PoolWorker | undefined {
    return chooseWorker(
      this.#slots.flatMap(({ worker }) => worker ?? []),
      task,
    )
  }

  /** A worker for a cohort alone; undefined while there are as many of those as may be. The caller owes a `giveBackIsolated`. */
  protected takeIsolated(cohort: number): IsolatedWorker | undefined {
    return this.#isolated.take(cohort)
  }

  protected giveBackIsolated(isolated: IsolatedWorker): void {
    this.#track(this.#isolated.giveBack(isolated))
  }

  /** Called when a call ended as it should: whatever died before, not everything is broken. */
  protected noteEnd(): void {
    this.#failures.noteEnd()
  }

  models(): readonly ModelStatus[] {
    const reports = [...this.#past.values(), ...Array.from(this.#workers, ({ report }) => report.models).flat()]
    return this.#limits.status().map((model) => reportedModel(model, reports))
  }

  offload(): readonly OffloadStatus[] {
    return Array.from(this.#workers, ({ report }) => report.offload).flat()
  }

  servers(): readonly ToolServerStatus[] {
    return serversTogether(Array.from(this.#workers, ({ report }) => report.servers).flat())
  }

  /** Those in quarantine have ids below zero. */
  workers(): readonly WorkerStatus[] {
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
      for (const slot of this.#slots.splice(size)) this.#retire(slot.release())
      await this.#addSlots(missing)
    })
  }

  /** One after another: there are never fewer than before. The old ones finish what they run. */
  async restart(): Promise<void> {
    const slots = [...this.#slots]
    this.#requireRoomAt(slots.map(({ id }) => id))
    for (const slot of slots) await this.#renew(slot)
  }

  protected async onClose(): Promise<void> {
    clearInterval(this.#ticker)
    this.#announce()
    await Promise.all(Array.from(this.#workers, (worker) => worker.close()))
    while (this.#chores.size > 0) await Promise.all(this.#chores)
  }

  async #addSlots(ids: readonly number[]): Promise<void> {
    const slots = ids.map((id) => new WorkerSlot(id, this.#startWorker, this.#announce))
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
    if (this.#limits.isFull) {
      throw new MillraceError(
        'worker_lost',
        'too many killed workers have not exited: their code cannot be interrupted. Ended rollouts are kept: run the same command again.',
      )
    }
    const workers = this.#slots.length
    let lease: LimitLease | undefined
    const worker = new PoolWorker({
      id,
      restarts,
      open: (options) => (kind === 'thread' ? new ThreadChannel(options) : new ProcessChannel(options)),
      start: { ...start, workers },
      journal: connectJournal(),
      lease: (send) => (lease = this.#limits.lease(send, { workers })),
      supervision: this.#supervision,
      onBlocked: ({ lagMs, blockedBy }) => onBlocked?.({ worker: id, lagMs, blockedBy }),
      onMetrics: (delta) => onMetrics?.(delta),
      onChange: this.#announce,
      onDeath: this.#onWorkerDeath,
    })
    this.#workers.add(worker)
    // Only when it is really gone: until then it may hold permits.
    void worker.exited.then(() => lease?.close())
    return worker
  }

  #noteServers({ report }: PoolWorker): void {
    for (const { server, state } of report.servers) if (state !== 'unopened') this.#openedServers.add(server)
  }

  readonly #onWorkerDeath = (worker: PoolWorker, death: WorkerDeath): void => {
    this.onDeath(death)
    // Its last report may have come after the last tick.
    this.#noteServers(worker)
    this.#isolated.clear(worker)
    const slot = this.#slots.find((each) => each.clear(worker))
    if (slot) this.#track(slot.fill())
    const reason = death.isBlameless ? undefined : this.#failures.noteDeath(death.error)
    if (reason) this.#fail(reason)
    // The worker may be abandoned, but not gone: it is waited for until it is.
    this.#track(worker.close())
    this.#announce()
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
      `worker ${full} was already replaced, and its predecessor still finishes its rollouts: try again when the predecessor has ended`,
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
    this.#announce()
  }
}
