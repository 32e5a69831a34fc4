import { join } from 'node:path'
import { MillraceError } from '../errors/index.ts'
import { AbortScope, AbortSource, AsyncQueue, hash32, LoopLag, TimeSlice } from '../kit/index.ts'
import { holdsGroups, Scheduler, type Executor } from '../rollout/index.ts'
import { emptyUsage, type RolloutRecord } from '../schema/index.ts'
import { startTelemetry } from '../telemetry/index.ts'
import type { EvaluateOptions, Evaluation, RunInfo } from './evaluation.ts'
import { keepingChanges, keptChanges } from './code-change.ts'
import { earlierSitting } from './earlier-sitting.ts'
import { copyOutputs, forkedPlans, originOf } from './replay/fork.ts'
import { giveUpRun } from './give-up-run.ts'
import { knownEvaluateOptions, requireKnownOptions } from './known-options.ts'
import { openExecutor } from './open-executor.ts'
import { openRun, type OpenedRun } from './open-run.ts'
import { planRollouts } from './plan-rollouts.ts'
import type { Progress } from './progress.ts'
import { requireSameTasks } from './same-tasks.ts'
import { RunSpending, unacceptedSpending } from './run-spending.ts'
import { resolveRun, type ResolvedRun, type RunConfig } from './resolve-run.ts'
import type { Summary } from './summary.ts'
import { SummaryAccumulator } from './summary-accumulator.ts'
import { SittingTasks } from './_sitting-tasks.ts'
import { takeUpRun, type TakenUpRun } from './take-up-run.ts'
import { Stopwatch } from './_stopwatch.ts'
import { UnreadableRollouts } from './unreadable-rollouts.ts'
import { TaskDigest } from './_task-digest.ts'
import { sumOfTries, triesOfRun } from './sent-tries.ts'
import { WorkedTime } from './worked-time.ts'

/** Runs an environment's tasks against a model and hands out every rollout as it ends. */
export function evaluate(options: EvaluateOptions): Evaluation {
  return new RunningEvaluation(options)
}

/** Results that may wait for a slow reader; beyond this, rollouts keep their places. */
const maxUnreadResults = 256

/** The parts that one sitting works with. */
interface SittingParts {
  readonly opened: OpenedRun
  readonly taken: TakenUpRun
  readonly resolved: ResolvedRun
  readonly scheduler: Scheduler
  readonly accumulator: SummaryAccumulator
}

class RunningEvaluation implements Evaluation {
  readonly started: Promise<RunInfo>
  readonly #options: EvaluateOptions
  readonly #results: AsyncQueue<RolloutRecord>
  readonly #summary = Promise.withResolvers<Summary>()
  readonly #startedAt = performance.now()
  /** Runs while this sitting's rollouts do, not while models, tools and workers are opened. */
  readonly #work = new Stopwatch()
  readonly #lag = new LoopLag()
  readonly #stopping = new AbortController()
  /** Aborts when nothing new is to start: a source of tasks that is stuck must not hold up the end. */
  readonly #admission = new AbortSource()
  readonly #spending = new RunSpending()
  readonly #unreadable = new UnreadableRollouts()
  #state: Progress['state'] = 'running'
  #end: Summary['end'] = 'complete'
  #hasRefusedRetry = false
  /** Whether this sitting has worked on the run. */
  #hasBegun = false
  #resolved: ResolvedRun | undefined
  #info: RunInfo | undefined
  #store: OpenedRun['store'] | undefined
  #accumulator: SummaryAccumulator | undefined
  #tasks: SittingTasks | undefined
  #executor: Executor | undefined
  #scheduler: Scheduler | undefined

  constructor(options: EvaluateOptions) {
    this.#options = options
    this.#results = new AsyncQueue(maxUnreadResults, () => this.#onReaderGone())
    const started = Promise.withResolvers<RunInfo>()
    this.started = started.promise
    // A failure rejects all three promises, and not everybody awaits all of them.
    started.promise.catch(() => {})
    this.#summary.promise.catch(() => {})
    this.#carryOut(started.resolve).then(
      (summary) => {
        this.#state = 'ended'
        this.#summary.resolve(summary)
        this.#results.end()
      },
      (error: unknown) => {
        this.#state = 'ended'
        started.reject(error)
        this.#summary.reject(error)
        this.#results.fail(error)
      },
    )
  }

  [Symbol.asyncIterator](): AsyncIterator<RolloutRecord> {
    return this.#results[Symbol.asyncIterator]()
  }

  drain(): void {
    this.#drain('drained')
    this.#scheduler?.drainSoon()
  }

  stop(): void {
    this.#stop(new MillraceError('cancelled', 'the run was stopped'))
  }

  #stop(reason: MillraceError): void {
    if (this.#state === 'stopping' || this.#state === 'ended') return
    this.#state = 'stopping'
    this.#end = 'stopped'
    this.#stopping.abort(reason)
    this.#admission.abort(reason)
  }

  async summary(): Promise<Summary> {
    this.#results.awaitEnd()
    return await this.#summary.promise
  }

  progress(): Progress {
    const accumulator = this.#accumulator
    const config = this.#resolved?.config
    const elapsedMs = performance.now() - this.#startedAt
    const ended = (accumulator?.rollouts ?? 0) + this.#unreadable.count
    const resumed = this.#info?.resumed ?? 0
    const perSecond = perSecondOf(ended - resumed, this.#work.elapsedMs)
    const total = this.#total()
    return {
      run: this.#store?.run.name ?? '',
      environment: config?.environment.name ?? '',
      model: config?.model ?? '',
      hasToolServers: this.#resolved?.loaded.environment.mcpServers !== undefined,
      elapsedMs,
      total,
      ended,
      resumed,
      unread: this.#results.size,
      active: this.#scheduler?.active ?? 0,
      perSecond,
      etaMs: total && perSecond > 0 ? (Math.max(0, total.count - ended) / perSecond) * 1000 : undefined,
      score: accumulator?.estimate(),
      outcomes: accumulator?.outcomes ?? {},
      usage: accumulator ? { ...accumulator.usage } : emptyUsage(),
      cost: accumulator ? accumulator.cost : 0,
      lag: this.#lag.snapshot(),
      storeLag: this.#store?.lag() ?? { p99Ms: 0, maxMs: 0, meanMs: 0, utilization: 0 },
      models: this.#executor?.models() ?? [],
      workers: this.#executor?.workers() ?? [],
      state: this.#state,
    }
  }

  async #carryOut(onStarted: (info: RunInfo) => void): Promise<Summary> {
    using _lag = this.#lag
    requireKnownOptions(this.#options, 'evaluate()', knownEvaluateOptions)
    const { signal } = this.#options
    const onAbort = (): void => {
      this.#stop(new MillraceError('cancelled', 'the run was stopped by its signal', { cause: signal?.reason }))
    }
    if (signal?.aborted) onAbort()
    signal?.addEventListener('abort', onAbort, { once: true })
    try {
      this.#stopping.signal.throwIfAborted()
      const resolved = await resolveRun(this.#options, process.env, this.#stopping.signal)
      this.#resolved = resolved
      const opened = await openRun(resolved, this.#options.run ?? {}, this.#stopping.signal)
      let hasStarted = false
      await using ends = new AsyncDisposableStack()
      ends.defer(() => (hasStarted ? opened.store.close() : giveUpRun(opened)))
      return await this.#runIn(opened, resolved, (info) => {
        hasStarted = true
        onStarted(info)
      })
    } finally {
      signal?.removeEventListener('abort', onAbort)
    }
  }

  async #runIn(opened: OpenedRun, resolved: ResolvedRun, onStarted: (info: RunInfo) => void): Promise<Summary> {
    const { store, name, folder } = opened
    const { config, env } = resolved
    const { fork } = this.#options
    this.#store = store
    await using telemetry = startTelemetry({ env, run: name, metrics: false })
    const traced = telemetry.isTracing ? { run: name, metrics: false, onMetrics: () => {} } : undefined
    if (fork) await copyOutputs(fork, join(store.folder, 'outputs'), config.attempts)
    await using executor = await openExecutor(store, resolved, this.#options, traced)
    this.#executor = executor
    const silent = (this.#options.preflight ?? true) ? await executor.preflight(this.#stopping.signal) : []
    const accumulator = new SummaryAccumulator({
      attemptsPerTask: config.attempts,
      passThreshold: config.passThreshold,
    })
    this.#accumulator = accumulator
    await using tasks = await SittingTasks.open({ run: opened, resolved, fork, signal: this.#admission.signal })
    this.#tasks = tasks
    if (this.#options.run?.retryFailed) await requireSameTasks(store.reader, resolved, this.#admission.signal)
    const taken = await takeUpRun(opened, config, this.#options.run ?? {})
    this.#info = taken.info
    const sums = { accumulator, spending: this.#spending, unreadable: this.#unreadable }
    const earlierMs = await readEarlier(store, sums)
    const scheduler = this.#newScheduler(opened, taken, { config, executor })
    this.#scheduler = scheduler
    this.#checkCost(config.maxCostUsd)
    // `drain` or `stop` may have been called before there was a scheduler.
    if (this.#state !== 'running') scheduler.drain()
    using stopping = new AbortScope(this.#stopping.signal)
    using failing = new AbortScope(store.failure)
    for (const { signal } of [stopping, failing]) {
      const stop = (): void => scheduler.stop(MillraceError.from(signal.reason, 'cancelled'))
      if (signal.aborted) stop()
      else signal.addEventListener('abort', stop, { once: true })
    }
    // Not earlier: a sitting that is refused must not change the run.
    store.amend({ config: { limit: opened.extent } })
    onStarted({
      ...taken.info,
      notices: [...taken.info.notices, ...tasks.notices(taken), ...silent, ...telemetry.notices],
    })
    const isWhole = await this.#workThrough(tasks, { opened, taken, resolved, scheduler, accumulator })
    const wallMs = earlierMs + this.#work.elapsedMs
    return {
      ...accumulator.snapshot(),
      ...unacceptedSpending(store.reader),
      run: name,
      folder,
      environment: config.environment.name,
      model: config.model,
      ...(fork && { forkedFrom: originOf(fork) }),
      end: this.#end,
      state: isWhole ? 'complete' : 'unfinished',
      missingTasks: tasks.missing(),
      // Without `taskId` each task is named by its index, so no id is repeated.
      repeatedTaskIds: resolved.loaded.environment.taskId ? store.reader.repeatedTaskIds() : [],
      changedCode: keptChanges(store.run),
      ...this.#unreadable.snapshot(),
      wallMs,
      perSecond: perSecondOf(accumulator.rollouts, wallMs),
      tries: triesOfRun(store.run),
    }
  }

  #newScheduler(
    { store, seed }: OpenedRun,
    { changedCode }: TakenUpRun,
    { config, executor }: { readonly config: RunConfig; readonly executor: Executor },
  ): Scheduler {
    const { fork } = this.#options
    const keepChanges = keepingChanges(store, changedCode)
    return new Scheduler({
      labels: { environment: config.environment.name, model: config.model },
      executor,
      journal: store.journal,
      reader: store.reader,
      concurrency: config.concurrency,
      retries: config.retries,
      group: config.group,
      seedOf: (id, attempt) => fork?.from.seed ?? hash32(seed, id, attempt) >>> 1,
      mayStartOver: () => this.#mayRetry(config.maxCostUsd),
      onAttemptStart: () => {
        this.#hasBegun = true
        return keepChanges()
      },
      onGroupScore: keepChanges,
      onSettled: (record) => this.#onSettled(record),
      onAttemptEnd: (ended) => {
        this.#spending.add(ended)
        this.#checkCost(config.maxCostUsd)
      },
      onAdmissionEnd: () => {
        this.#admission.abort(new MillraceError('cancelled', 'no more rollouts are started'))
        // Only running rollouts can still end, and they must not wait for a reader that stands still.
        this.#results.unbind()
      },
    })
  }

  /** Runs the rollouts that are due, and keeps with the run how that ended. Resolves to whether the run is complete. */
  async #workThrough(
    tasks: SittingTasks,
    { opened: { store }, taken: { wasComplete }, resolved, scheduler, accumulator }: SittingParts,
  ): Promise<boolean> {
    const { config, settings } = resolved
    const { fork } = this.#options
    const taskDigest = new TaskDigest()
    let isWhole = false
    this.#work.start()
    try {
      const plans = planRollouts({
        tasks,
        config,
        journal: store.journal,
        onTask: (task) => taskDigest.add(task),
        earlier: store.isResumed ? earlierSitting(store.reader, config.retries) : undefined,
        isHoldingGroups: holdsGroups(config.group),
      })
      const hasRunAll = await scheduler.run(fork ? forkedPlans(plans, fork, settings.sendSeed) : plans)
      store.failure.throwIfAborted()
      // All rollouts have run: a drain or stop came too late to matter, unless a retry was refused.
      if (hasRunAll) this.#end = this.#hasRefusedRetry ? 'max_cost' : 'complete'
      // A complete run that was drained before anything began is still complete.
      isWhole = hasRunAll ? wasComplete || tasks.areAll() : wasComplete && !this.#hasBegun
      return isWhole
    } catch (error) {
      this.#end = 'failed'
      // In a complete run, changed tasks are found before anything new begins, so the run is still complete.
      isWhole = wasComplete && error instanceof MillraceError && error.code === 'run_mismatch'
      throw error
    } finally {
      this.#work.stop()
      if (!store.failure.aborted) {
        await store.finish(isWhole ? 'complete' : 'unfinished', {
          end: this.#end,
          workedMs: Math.round(this.#work.elapsedMs),
          sent: sumOfTries(this.#executor?.models() ?? []),
          provenance: { taskDigest: taskDigest.hex(), results: this.#resultsOf(accumulator) },
        })
      }
    }
  }

  /** The figures that a listing shows, kept with the run so that a listing need not read every result. */
  #resultsOf(accumulator: SummaryAccumulator): { ended: number; scored: number; score: number | null } {
    const { rollouts, scored, score } = accumulator.snapshot()
    return { ended: rollouts + this.#unreadable.count, scored, score: score?.mean ?? null }
  }

  #onSettled(record: RolloutRecord): Promise<void> | undefined {
    this.#hasBegun = true
    this.#accumulator?.add(record)
    return this.#results.push(record)
  }

  #checkCost(maxCostUsd: number | null): void {
    if (this.#isSpent(maxCostUsd)) this.#drain('max_cost')
  }

  #mayRetry(maxCostUsd: number | null): boolean {
    if (!this.#isSpent(maxCostUsd)) return true
    this.#hasRefusedRetry = true
    return false
  }

  #isSpent(maxCostUsd: number | null): boolean {
    return maxCostUsd !== null && this.#spending.costUsd >= maxCostUsd
  }

  #drain(end: 'drained' | 'max_cost'): void {
    if (this.#state !== 'running') return
    this.#state = 'draining'
    this.#end = end
    this.#scheduler?.drain()
    this.#admission.abort(new MillraceError('cancelled', 'the run was drained before it had started'))
  }

  /** Leaving the loop early stops the run; reaching its end finds it ended already. */
  async #onReaderGone(): Promise<void> {
    this.stop()
    await this.#summary.promise.catch(() => {})
  }

  #total(): Progress['total'] {
    const config = this.#resolved?.config
    if (!config) return undefined
    if (config.forkedFrom) return { count: config.attempts, exact: true }
    const tasks = this.#tasks?.total()
    if (!tasks) return undefined
    // If a run is continued with fewer tasks, more rollouts may have ended than are to do now.
    return { count: Math.max(tasks.count * config.attempts, this.#accumulator?.rollouts ?? 0), exact: tasks.exact }
  }
}

function perSecondOf(ended: number, ms: number): number {
  return ms > 0 ? (ended / ms) * 1000 : 0
}

/** The sums that results of earlier sittings are added to. */
interface EarlierSums {
  readonly accumulator: SummaryAccumulator
  readonly spending: RunSpending
  readonly unreadable: UnreadableRollouts
}

/**
 * Adds up the results of earlier sittings, a page per turn of the loop: a large run takes seconds to read. Resolves to how long
 * those sittings worked.
 */
async function readEarlier(
  store: OpenedRun['store'],
  { accumulator, spending, unreadable }: EarlierSums,
): Promise<number> {
  const worked = new WorkedTime(store.run.sittings.slice(0, -1))
  for await (const stored of new TimeSlice().over(store.reader.ended())) {
    worked.noteEnd(stored.endedAt)
    const record = unreadable.recordOf(stored)
    if (record) accumulator.add(record)
    spending.addEnded(stored, record, store.reader)
  }
  await spending.addUnaccepted(store.reader)
  return worked.sumMs()
}
