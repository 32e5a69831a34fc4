import { MillraceError } from '../errors/index.ts'
import { AsyncQueue, type Draft, LoopLag } from '../kit/index.ts'
import { emptyUsage, type RolloutRecord } from '../schema/index.ts'
import { openLaunch, type Launch, type LaunchParts, runRollouts } from './launch.ts'
import {
  type EvaluateOptions,
  evaluateOptionsSchema,
  type Evaluation,
  requireOptions,
  type RunInfo,
} from './options.ts'
import type { Progress } from './progress.ts'
import { originOf } from './replay/fork.ts'
import { recordedCodeChanges } from './resume/code-change.ts'
import { RunControl } from './run-control.ts'
import { perSecondOf } from './stats/run-sums.ts'
import { triesOfRun, unacceptedSpending } from './stats/spending.ts'
import type { Summary } from './summary.ts'

/** Runs an environment's tasks against a model and hands out every rollout as it ends. */
export function evaluate(options: EvaluateOptions): Evaluation {
  return new RunningEvaluation(options)
}

/** Results that may wait for a slow reader; beyond this, rollouts keep their places. */
const maxUnreadResults = 256

class RunningEvaluation implements Evaluation {
  readonly started: Promise<RunInfo>
  readonly #results: AsyncQueue<RolloutRecord>
  readonly #summary = Promise.withResolvers<Summary>()
  readonly #startedAt = performance.now()
  readonly #lag = new LoopLag()
  readonly #control = new RunControl()
  /** The parts of the launch that are open by now. */
  readonly #parts: Partial<Draft<LaunchParts>> = {}

  constructor(options: EvaluateOptions) {
    this.#results = new AsyncQueue(maxUnreadResults, () => this.#onReaderGone())
    const started = Promise.withResolvers<RunInfo>()
    this.started = started.promise
    // A failure rejects all three promises, and not everybody awaits all of them.
    started.promise.catch(() => {})
    this.#summary.promise.catch(() => {})
    this.#run(options, started.resolve).then(
      (summary) => {
        this.#control.noteEnded()
        this.#summary.resolve(summary)
        this.#results.end()
      },
      (error: unknown) => {
        this.#control.noteEnded()
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
    this.#control.drain()
  }

  stop(): void {
    this.#control.stop(new MillraceError('cancelled', 'the run was stopped'))
  }

  async summary(): Promise<Summary> {
    this.#results.awaitEnd()
    return await this.#summary.promise
  }

  progress(): Progress {
    const { resolved, opened, executor, sums, taken } = this.#parts
    const accumulator = sums?.accumulator
    const config = resolved?.config
    const ended = sums?.ended ?? 0
    const resumed = taken?.info.resumed ?? 0
    const perSecond = perSecondOf(ended - resumed, sums?.work.elapsedMs ?? 0)
    const total = totalOf(this.#parts)
    return {
      run: opened?.store.run.name ?? '',
      environment: config?.environment.name ?? '',
      model: config?.model ?? '',
      hasToolServers: resolved?.loaded.environment.mcpServers !== undefined,
      elapsedMs: performance.now() - this.#startedAt,
      total,
      ended,
      resumed,
      unread: this.#results.size,
      active: this.#control.active,
      perSecond,
      etaMs: total && perSecond > 0 ? (Math.max(0, total.count - ended) / perSecond) * 1000 : undefined,
      score: accumulator?.estimate(),
      outcomes: accumulator?.outcomes ?? {},
      usage: accumulator ? { ...accumulator.usage } : emptyUsage(),
      cost: accumulator ? accumulator.cost : 0,
      lag: this.#lag.snapshot(),
      storeLag: opened?.store.lag() ?? { p99Ms: 0, maxMs: 0, meanMs: 0, utilization: 0 },
      models: executor?.models() ?? [],
      servers: executor?.servers() ?? [],
      workers: executor?.workers() ?? [],
      state: this.#control.state,
    }
  }

  async #run(options: EvaluateOptions, onStarted: (info: RunInfo) => void): Promise<Summary> {
    using _lag = this.#lag
    requireOptions(evaluateOptionsSchema, options, 'evaluate()')
    const control = this.#control
    using _signal = control.follow(options.signal)
    await using launch = await openLaunch(options, control, this.#parts)
    onStarted(launch.begin())
    return summaryOf(launch, await runRollouts(launch, control, this.#results))
  }

  /** Leaving the loop early stops the run; reaching its end finds it ended already. */
  async #onReaderGone(): Promise<void> {
    this.stop()
    await this.#summary.promise.catch(() => {})
  }
}

function totalOf({ resolved, tasks, sums }: Partial<LaunchParts>): Progress['total'] {
  if (!resolved) return undefined
  const { attempts, forkedFrom } = resolved.config
  if (forkedFrom) return { count: attempts, exact: true }
  const total = tasks?.total()
  if (!total) return undefined
  // If a run is continued with fewer tasks, more rollouts may have ended than are to do now.
  return { count: Math.max(total.count * attempts, sums?.accumulator.rollouts ?? 0), exact: total.exact }
}

function summaryOf(
  { opened: { store, name, folder }, resolved: { config, loaded }, sums, tasks, fork }: Launch,
  { end, isComplete }: { readonly end: Summary['end']; readonly isComplete: boolean },
): Summary {
  const { accumulator, unreadable, wallMs } = sums
  return {
    ...accumulator.snapshot(),
    ...unacceptedSpending(store.reader),
    run: name,
    folder,
    environment: config.environment.name,
    model: config.model,
    ...(config.agent && { agent: config.agent }),
    ...(fork && { forkedFrom: originOf(fork) }),
    end,
    state: isComplete ? 'complete' : 'unfinished',
    missingTasks: tasks.missing(),
    // Without `taskId` each task is named by its index, so no id is repeated.
    repeatedTaskIds: loaded.environment.taskId ? store.reader.repeatedTaskIds() : [],
    changedCode: recordedCodeChanges(store.run),
    ...unreadable.snapshot(),
    wallMs,
    perSecond: perSecondOf(accumulator.rollouts, wallMs),
    tries: triesOfRun(store.run),
  }
}
