import { join } from 'node:path'
import type { Draft } from '../kit/index.ts'
import type { Executor } from '../rollout/index.ts'
import { startTelemetry } from '../telemetry/index.ts'
import type { EvaluateOptions, RunInfo } from './evaluation.ts'
import { giveUpRun } from './give-up-run.ts'
import { openExecutor } from './open-executor.ts'
import { openRun, type OpenedRun } from './open-run.ts'
import { copyOutputs, type Fork } from './replay/fork.ts'
import { resolveRun, type ResolvedRun } from './resolve-run.ts'
import type { RunControl } from './_run-control.ts'
import { RunSums } from './_run-sums.ts'
import { requireSameTasks } from './same-tasks.ts'
import { SittingTasks } from './_sitting-tasks.ts'
import { takeUpRun, type TakenUpRun } from './take-up-run.ts'

/** What a sitting works with. */
export interface SittingParts {
  readonly resolved: ResolvedRun
  readonly opened: OpenedRun
  readonly executor: Executor
  readonly sums: RunSums
  readonly tasks: SittingTasks
  readonly taken: TakenUpRun
}

/** One sitting of a run, with everything open. */
export interface Sitting extends SittingParts, AsyncDisposable {
  readonly fork: Fork | undefined
  /** From here on the sitting changes the run. One that ends before this leaves a run as it was, and removes a new one. */
  begin(): RunInfo
}

/** Opens a run, or the one that is continued, and what its rollouts need. Each part is in `parts` as soon as it is there. */
export async function openSitting(
  options: EvaluateOptions,
  { stopping, admission }: RunControl,
  parts: Partial<Draft<SittingParts>>,
): Promise<Sitting> {
  const { fork, run: runOptions = {}, preflight = true } = options
  stopping.throwIfAborted()
  const resolved = await resolveRun(options, process.env, stopping)
  parts.resolved = resolved
  const { config, env } = resolved
  const isLone = config.concurrency === 1 && config.workers === null
  const opened = await openRun(resolved, runOptions, { isLone, signal: stopping })
  let hasBegun = false
  await using ends = new AsyncDisposableStack()
  ends.defer(() => (hasBegun ? opened.store.close() : giveUpRun(opened)))
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
  const tasks = ends.use(await SittingTasks.open({ run: opened, resolved, fork, signal: admission }))
  parts.tasks = tasks
  if (runOptions.retryFailed) await requireSameTasks(store.reader, resolved, admission)
  const taken = await takeUpRun(opened, config, runOptions)
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
      store.amend({ config: { limit: opened.extent } })
      hasBegun = true
      const notices = [...taken.info.notices, ...tasks.notices(taken), ...silent, ...telemetry.notices]
      return { ...taken.info, notices }
    },
    [Symbol.asyncDispose]: () => open.disposeAsync(),
  }
}
