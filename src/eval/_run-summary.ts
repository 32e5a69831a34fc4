import { keptChanges } from './code-change.ts'
import type { Sitting } from './_open-sitting.ts'
import { originOf } from './replay/fork.ts'
import { unacceptedSpending } from './run-spending.ts'
import { perSecondOf } from './_run-sums.ts'
import { triesOfRun } from './sent-tries.ts'
import type { Summary } from './summary.ts'

/** What the run has come to at the end of a sitting. */
export function summaryOf(
  { opened: { store, name, folder }, resolved: { config, loaded }, sums, tasks, fork }: Sitting,
  { end, isWhole }: { readonly end: Summary['end']; readonly isWhole: boolean },
): Summary {
  const { accumulator, unreadable, wallMs } = sums
  return {
    ...accumulator.snapshot(),
    ...unacceptedSpending(store.reader),
    run: name,
    folder,
    environment: config.environment.name,
    model: config.model,
    ...(fork && { forkedFrom: originOf(fork) }),
    end,
    state: isWhole ? 'complete' : 'unfinished',
    missingTasks: tasks.missing(),
    // Without `taskId` each task is named by its index, so no id is repeated.
    repeatedTaskIds: loaded.environment.taskId ? store.reader.repeatedTaskIds() : [],
    changedCode: keptChanges(store.run),
    ...unreadable.snapshot(),
    wallMs,
    perSecond: perSecondOf(accumulator.rollouts, wallMs),
    tries: triesOfRun(store.run),
  }
}
