import { readTasks, type TaskItem } from '../env/index.ts'
import { MillraceError } from '../errors/index.ts'
import { TimeSlice } from '../kit/index.ts'
import { outcomes, rolloutId } from '../schema/index.ts'
import type { RunReader } from '../store/index.ts'
import { asNewRun } from './_as-new-run.ts'
import { earlierSitting, type EarlierSitting } from './earlier-sitting.ts'
import type { ResolvedRun } from './resolve-run.ts'

/** Whether the run has not begun with this task. Throws `run_mismatch` if it has, and the task has changed since. */
export function isNewTask(item: TaskItem, attempts: number, earlier: EarlierSitting | undefined): boolean {
  const known = earlier?.taskDigest(item.index)
  if (known === item.digest) return false
  if (known === undefined || standsNothing(item.index, attempts, earlier)) return true
  throw new MillraceError(
    'run_mismatch',
    `task ${item.index} (${item.id}) is not what it was when this run began. Restore the tasks, or start a new run with ${asNewRun}.`,
    { data: { task: item.index } },
  )
}

/** Throws `run_mismatch` if the run has begun with more tasks than there are. */
export function requireNoMore(count: number, limit: number | null, earlier: EarlierSitting | undefined): void {
  if (count === limit || earlier?.taskDigest(count) === undefined) return
  throw new MillraceError(
    'run_mismatch',
    `the source of tasks ends after ${count}, and this run has begun with more of them. Restore the tasks, do only these with --limit ${count} (limit), or start a new run with ${asNewRun}.`,
    { data: { task: count } },
  )
}

/**
 * Compares the tasks that a run has begun with and those of this sitting, before results are taken back to be run again: if the
 * run then could not go on, those results would be missing. The tasks are read once more for that.
 */
export async function requireSameTasks(
  reader: RunReader,
  { config, loaded }: ResolvedRun,
  signal: AbortSignal,
): Promise<void> {
  const { attempts, limit, retries } = config
  const earlier: EarlierSitting = {
    ...earlierSitting(reader, retries),
    hasEnded: (id) => isKept(reader, id),
  }
  const slice = new TimeSlice()
  let count = 0
  for await (const item of await readTasks(loaded.environment, loaded.options, { limit: limit ?? undefined, signal })) {
    // Tasks are begun in order: those after a new one are new, too.
    if (earlier.taskDigest(item.index) === undefined) return
    isNewTask(item, attempts, earlier)
    count = item.index + 1
    // A source in memory never waits, so yield to the event loop.
    if (slice.isOver) await slice.rest()
  }
  requireNoMore(count, limit, earlier)
}

/** Whether a rollout has a result that is kept, or that is taken back only to be scored again from its journal. */
function isKept(reader: RunReader, id: string): boolean {
  const outcome = reader.rollout(id)?.outcome
  return outcome !== undefined && (outcomes[outcome].scored || outcomes[outcome].rule === 'rescore')
}

/**
 * Whether nothing that was done with a task counts. Then a changed task is taken as new: a row that was no task, say, and was
 * corrected.
 */
function standsNothing(index: number, attempts: number, earlier: EarlierSitting | undefined): boolean {
  for (let sample = 0; sample < attempts; sample += 1) {
    const id = rolloutId(index, sample)
    if (earlier?.hasEnded(id)) return false
    const unfinished = earlier?.unfinished(id)
    if (unfinished && unfinished.state !== 'discarded') return false
  }
  return true
}
