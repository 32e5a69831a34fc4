import { readTasks, type LoadedEnvironment, type ValidTask } from '../../env/index.ts'
import { MillraceError } from '../../errors/index.ts'
import type { RunReader } from '../../store/index.ts'

/** What to do about a task that has changed: tasks may depend on options, too. */
export const restoreTask =
  'restore it, or leave out the --env (options) or --environment (environment) that made it another'

/** A task of a run. `problem` says why its rollouts cannot use it, if it has changed or is gone. */
export type KnownTask =
  | { readonly index: number; readonly item: ValidTask; readonly problem?: undefined }
  | { readonly index: number; readonly problem: string }

/**
 * The tasks that a run has worked on, in order and one at a time. The run keeps only their digests, so they are read again from
 * the environment, and no further than the run's last one.
 */
export async function* knownTasks(
  reader: RunReader,
  { environment, options }: LoadedEnvironment,
  signal?: AbortSignal,
): AsyncGenerator<KnownTask, void, void> {
  const { tasks } = reader.counts()
  let known = 0
  let next = 0
  if (tasks === 0) return
  for await (const item of await readTasks(environment, options, { signal })) {
    const { index } = item
    next = index + 1
    const stored = reader.task(index)
    if (!stored) continue
    if (stored.digest !== item.digest) {
      yield { index, problem: `task ${index} (${stored.id}) is not what it was when the run was made` }
    } else if (item.problem) yield { index, problem: item.problem.rawMessage }
    else yield { index, item }
    known += 1
    if (known === tasks) return
  }
  for (let index = next; known < tasks; index += 1) {
    const stored = reader.task(index)
    if (!stored) continue
    known += 1
    yield { index, problem: `task ${index} (${stored.id}) is not among the environment's tasks any more` }
  }
}

/** One of the run's tasks. Throws `run_mismatch` if it is gone or has changed. */
export async function knownTask(
  reader: RunReader,
  loaded: LoadedEnvironment,
  { index, signal }: { readonly index: number; readonly signal?: AbortSignal | undefined },
): Promise<ValidTask> {
  for await (const task of knownTasks(reader, loaded, signal)) {
    if (task.index !== index) continue
    if (task.problem === undefined) return task.item
    throw new MillraceError('run_mismatch', `${task.problem}; ${restoreTask}`)
  }
  throw new MillraceError('run_mismatch', `the run knows no task ${index}; it may be damaged`)
}
