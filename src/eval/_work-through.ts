import { MillraceError } from '../errors/index.ts'
import { derivedSeed, type AsyncQueue } from '../kit/index.ts'
import { holdsGroups, Scheduler } from '../rollout/index.ts'
import type { RolloutRecord } from '../schema/index.ts'
import { keepingChanges } from './code-change.ts'
import { earlierSitting } from './earlier-sitting.ts'
import type { Sitting } from './_open-sitting.ts'
import { planRollouts } from './plan-rollouts.ts'
import { forkedPlans } from './replay/fork.ts'
import type { RunControl } from './_run-control.ts'
import { sumOfTries } from './sent-tries.ts'
import { TaskDigest } from './_task-digest.ts'

/** Runs the rollouts that are due, and keeps with the run how that ended. Resolves to that, and to whether the run is complete. */
export async function workThrough(
  sitting: Sitting,
  control: RunControl,
  results: AsyncQueue<RolloutRecord>,
): Promise<{ readonly end: RunControl['end']; readonly isWhole: boolean }> {
  const { opened, resolved, executor, sums, tasks, fork } = sitting
  const { store } = opened
  const { config, settings } = resolved
  const { wasComplete } = sitting.taken
  const taskDigest = new TaskDigest()
  let hasBegun = false
  let isWhole = false
  const scheduler = schedulerOf(sitting, control, { results, onWork: () => (hasBegun = true) })
  using _steering = control.steer(scheduler, store.failure)
  if (sums.isSpent) control.drainSpent()
  sums.work.start()
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
    if (hasRunAll) control.noteAllRun()
    // A complete run that was drained before anything began is still complete.
    isWhole = hasRunAll ? wasComplete || tasks.areAll() : wasComplete && !hasBegun
    // A drain or stop that comes while the run is being closed does not change how it ended.
    return { end: control.end, isWhole }
  } catch (error) {
    control.noteFailure()
    // In a complete run, changed tasks are found before anything new begins, so the run is still complete.
    isWhole = wasComplete && error instanceof MillraceError && error.code === 'run_mismatch'
    throw error
  } finally {
    sums.work.stop()
    if (!store.failure.aborted) {
      await store.finish(isWhole ? 'complete' : 'unfinished', {
        end: control.end,
        workedMs: Math.round(sums.work.elapsedMs),
        sent: sumOfTries(executor.models()),
        provenance: { taskDigest: taskDigest.hex(), results: sums.forListing() },
      })
    }
  }
}

interface SchedulerEvents {
  readonly results: AsyncQueue<RolloutRecord>
  /** Called when anything begins or ends in this sitting. */
  readonly onWork: () => void
}

function schedulerOf(
  { opened: { store, seed }, resolved: { config }, executor, sums, taken, fork }: Sitting,
  control: RunControl,
  { results, onWork }: SchedulerEvents,
): Scheduler {
  const keepChanges = keepingChanges(store, taken.changedCode)
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
      if (sums.isSpent) control.drainSpent()
    },
    onAdmissionEnd: () => {
      control.endAdmission()
      // Only running rollouts can still end, and they must not wait for a reader that stands still.
      results.unbind()
    },
  })
}
