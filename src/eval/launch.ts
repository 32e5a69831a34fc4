import { createHash } from 'node:crypto'
import { join } from 'node:path'
import { MillraceError } from '../errors/index.ts'
import { type AsyncQueue, derivedSeed, type Draft } from '../kit/index.ts'
import {
  type Executor,
  waitsForGroups,
  InlineExecutor,
  recordBlocked,
  recordLimitChange,
  Scheduler,
} from '../rollout/index.ts'
import type { RolloutRecord } from '../schema/index.ts'
import type { RunStore } from '../store/index.ts'
import { type MetricsDelta, startTelemetry, type TelemetryOptions } from '../telemetry/index.ts'
import { WorkerPool } from '../worker/index.ts'
import type { EvaluateOptions, RunInfo } from './options.ts'
import { copyOutputs, type Fork, forkedPlans } from './replay/fork.ts'
import { type ResolvedRun, resolveRun } from './resolve-run.ts'
import { recordCodeChanges } from './resume/code-change.ts'
import { abortRun, type OpenedRun, openRun } from './resume/open-run.ts'
import { planRollouts, requireSameTasks } from './resume/plan-rollouts.ts'
import { type ResumedRun, resumeRun } from './resume/resume-run.ts'
import { LaunchTasks } from './resume/run-tasks.ts'
import { earlierLaunch } from './resume/unfinished-work.ts'
import type { RunControl } from './run-control.ts'
import { RunSums } from './stats/run-sums.ts'
import { sumTries } from './stats/spending.ts'

export interface LaunchParts {
  readonly resolved: ResolvedRun
  readonly opened: OpenedRun
  readonly executor: Executor
  readonly sums: RunSums
  readonly tasks: LaunchTasks
  readonly taken: ResumedRun
}

export interface Launch extends LaunchParts, AsyncDisposable {
  readonly fork: Fork | undefined
  /** From here on the launch changes the run. One that ends before this leaves a run as it was, and removes a new one. */
  begin(): RunInfo
}

/** Opens a run, or the one that is continued, and what its rollouts need. Each part is in `parts` as soon as it is there. */
export async function openLaunch(
  options: EvaluateOptions,
  { stopping, admission }: RunControl,
  parts: Partial<Draft<LaunchParts>>,
): Promise<Launch> {
  const { fork, run: runOptions = {}, preflight = true } = options
  stopping.throwIfAborted()
  const resolved = await resolveRun(options, process.env, stopping)
  parts.resolved = resolved
  const { config, env } = resolved
  const opened = await openRun(resolved, runOptions, stopping)
  let hasBegun = false
  await using ends = new AsyncDisposableStack()
  ends.defer(() => (hasBegun ? opened.store.close() : abortRun(opened)))
  parts.opened = opened
  const { store, name } = opened
  const telemetry = ends.use(startTelemetry({ env, run: name, metrics: false }))
  const traced = telemetry.isTracing ? { run: name, metrics: false, onMetrics: () => {} } : undefined
  if (fork) await copyOutputs(fork, join(store.folder, 'outputs'), config.attempts)
  const executor = ends.use(await openExecutor(store, resolved, options, traced))
  parts.executor = executor
  const silent = preflight ? await executor.preflight(stopping) : []
  const sums = new RunSums(config)
  parts.sums = sums
  const tasks = ends.use(await LaunchTasks.open({ run: opened, resolved, fork, signal: admission }))
  parts.tasks = tasks
  if (runOptions.retryFailed) await requireSameTasks(store.reader, resolved, admission)
  const taken = await resumeRun(opened, config, runOptions)
  parts.taken = taken
  await sums.addEarlier(store)
  const open = ends.move()
  return {
    resolved,
    opened,
    executor,
    sums,
    tasks,
    taken,
    fork,
    begin() {
      store.amend({ config: { limit: opened.taskLimit } })
      hasBegun = true
      const notices = [
        ...taken.info.notices,
        ...tasks.notices(taken.wasComplete, taken.changedCode),
        ...silent,
        ...telemetry.notices,
      ]
      return { ...taken.info, notices }
    },
    [Symbol.asyncDispose]: () => open.disposeAsync(),
  }
}

/** Opens the place where rollouts run. The caller closes it, before the store. Workers count and trace if `telemetry` is given. */
export async function openExecutor(
  store: RunStore,
  resolved: ResolvedRun,
  options: EvaluateOptions,
  telemetry: (Pick<TelemetryOptions, 'run' | 'metrics'> & { onMetrics: (delta: MetricsDelta) => void }) | undefined,
): Promise<Executor> {
  const { env, loaded, supervision, config } = resolved
  const { environment, specifier } = loaded
  const settings = {
    ...resolved.settings,
    ...(telemetry && { run: telemetry.run }),
    outputsFolder: join(store.folder, 'outputs'),
  }
  const { models } = config
  const module = specifier === undefined ? undefined : { specifier, options: options.options ?? {} }
  if (config.workers === null || !module) {
    const { journal } = store
    const own = { ...(module && { module }), ...(options.backends && { backends: options.backends }) }
    return new InlineExecutor({ environment, options: loaded.options, settings, models, env, journal, ...own })
  }
  return await WorkerPool.start({
    size: config.workers,
    kind: environment.isolation ?? 'thread',
    start: {
      ...module,
      settings,
      models,
      ...(telemetry && { telemetry: { run: telemetry.run, metrics: telemetry.metrics } }),
    },
    supervision,
    connectJournal: () => store.connect(),
    onLimitChange: (change) => recordLimitChange(store.journal, change),
    onBlocked: (blocked) => recordBlocked(store.journal, blocked),
    ...(telemetry && { onMetrics: telemetry.onMetrics }),
  })
}

/** Runs the rollouts that are due, and keeps with the run how that ended. Resolves to that, and to whether the run is complete. */
export async function runRollouts(
  launch: Launch,
  control: RunControl,
  results: AsyncQueue<RolloutRecord>,
): Promise<{ readonly end: RunControl['end']; readonly isComplete: boolean }> {
  const { opened, resolved, executor, sums, tasks, fork } = launch
  const { store } = opened
  const { config, settings } = resolved
  const { wasComplete } = launch.taken
  const taskDigest = createHash('sha256')
  let hasBegun = false
  let isComplete = false
  const scheduler = schedulerOf(launch, control, results, () => (hasBegun = true))
  using _steering = control.steer(scheduler, store.failure)
  if (sums.isSpent) control.drain('max_cost')
  sums.work.start()
  try {
    const plans = planRollouts({
      tasks,
      config,
      journal: store.journal,
      onTask: ({ index, digest }) => taskDigest.update(`${index} ${digest}\n`),
      earlier: store.isResumed ? earlierLaunch(store.reader, config.retries) : undefined,
      isWaitingForGroups: waitsForGroups(config.group),
    })
    const hasRunAll = await scheduler.run(fork ? forkedPlans(plans, fork, settings.sendSeed) : plans)
    store.failure.throwIfAborted()
    if (hasRunAll) control.noteAllRun()
    // A complete run that was drained before anything began is still complete.
    isComplete = hasRunAll ? wasComplete || tasks.areAll() : wasComplete && !hasBegun
    // A drain or stop that comes while the run is being closed does not change how it ended.
    return { end: control.end, isComplete }
  } catch (error) {
    control.noteFailure()
    // In a complete run, changed tasks are found before anything new begins, so the run is still complete.
    isComplete = wasComplete && error instanceof MillraceError && error.code === 'run_mismatch'
    throw error
  } finally {
    sums.work.stop()
    if (!store.failure.aborted) {
      await store.finish(isComplete ? 'complete' : 'unfinished', {
        end: control.end,
        workedMs: Math.round(sums.work.elapsedMs),
        sent: sumTries(executor.models()),
        provenance: { taskDigest: taskDigest.digest('hex'), results: sums.forListing() },
      })
    }
  }
}

/** `onWork` is called when anything begins or ends in this launch. */
function schedulerOf(
  { opened: { store, seed }, resolved: { config }, executor, sums, taken, fork }: Launch,
  control: RunControl,
  results: AsyncQueue<RolloutRecord>,
  onWork: () => void,
): Scheduler {
  const keepChanges = recordCodeChanges(store, taken.changedCode)
  return new Scheduler({
    labels: { environment: config.environment.name, model: config.model },
    executor,
    journal: store.journal,
    reader: store.reader,
    concurrency: config.concurrency,
    retries: config.retries,
    group: config.group,
    seedOf: (id, attempt) => fork?.from.seed ?? derivedSeed(seed, id, attempt),
    mayStartOver: () => {
      if (sums.isSpent) control.refuseRetry()
      return !sums.isSpent
    },
    onAttemptStart: () => {
      onWork()
      return keepChanges()
    },
    onGroupScore: keepChanges,
    onSettled: (record) => {
      onWork()
      sums.addResult(record)
      return results.push(record)
    },
    onAttemptEnd: (ended) => {
      sums.addCost(ended)
      if (sums.isSpent) control.drain('max_cost')
    },
    onAdmissionEnd: () => {
      control.endAdmission()
      // Only running rollouts can still end, and they must not wait for a reader that stands still.
      results.unbind()
    },
  })
}
