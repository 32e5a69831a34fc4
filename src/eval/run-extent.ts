import type { RunFile } from '../store/index.ts'
import { asNewRun } from './_as-new-run.ts'

/** How many tasks a sitting reads, as far as that is known. */
type TaskTotal = { readonly count: number; readonly exact: boolean } | undefined

/**
 * How many tasks a run has, from the start of the source; null for all there are. A sitting may ask for fewer, to see some
 * results first, or for more: the run has as many as its widest sitting asked for, and is complete when those have ended.
 */
export type RunExtent = number | null

export function extentOf({ config }: RunFile): RunExtent {
  const { limit } = config
  return typeof limit === 'number' ? limit : null
}

export function widestExtent(before: RunExtent | undefined, limit: RunExtent): RunExtent {
  if (before === undefined) return limit
  return limit === null || before === null ? null : Math.max(before, limit)
}

/** A notice for a person who asks for fewer tasks than the run has; undefined if they do not. */
export function narrowNotice(name: string, extent: RunExtent, limit: RunExtent): string | undefined {
  if (limit === null || limit === extent) return undefined
  const begun = extent === null ? 'all tasks' : `${extent.toLocaleString('en-US')} tasks`
  const here = limit === 1 ? 'the first one' : `the first ${limit.toLocaleString('en-US')}`
  const next = extent === null ? 'leave out --limit (limit) to finish it' : `--limit ${extent} (limit) finishes it`
  return `run ${name} is of ${begun}: this sitting does ${here} and leaves it open; ${next}, ${asNewRun} starts another`
}

/** How many tasks the run was found to have, by any of its sittings; undefined while none knows. */
export function knownTasks(before: number | undefined, total: TaskTotal): number | undefined {
  const now = total?.exact ? total.count : 0
  return Math.max(before ?? 0, now) || undefined
}

/** How many tasks the sittings so far have found. */
export function tasksFound({ provenance }: RunFile): number | undefined {
  const { tasks } = provenance
  return typeof tasks === 'number' ? tasks : undefined
}

/**
 * A notice for a person whose source of tasks has become longer; undefined if it has not, or if that is not known. A run that had
 * as many tasks as it asked for does not say how many there were.
 */
export function addedNotice(
  name: string,
  before: { readonly tasks: number | undefined; readonly extent: RunExtent | undefined },
  total: TaskTotal,
): string | undefined {
  const { tasks, extent } = before
  if (tasks === undefined || extent === undefined || !total?.exact) return undefined
  if (extent !== null && tasks >= extent) return undefined
  if (total.count <= tasks) return undefined
  const count = (number: number): string => number.toLocaleString('en-US')
  return `run ${name} was of ${count(tasks)} tasks and their source has ${count(total.count)} now: those that were added run too; --limit ${tasks} (limit) leaves them out`
}

/** How many tasks that this sitting should find, since the run had them before, its source does not have any more. */
export function missingTasks(known: number | undefined, limit: RunExtent, total: TaskTotal): number {
  if (known === undefined || !total?.exact) return 0
  return Math.max(0, Math.min(known, limit ?? known) - total.count)
}

/** A notice for a person whose source of tasks has become shorter; undefined if it has not. */
export function missingNotice(name: string, missing: number, total: TaskTotal): string | undefined {
  if (missing === 0 || !total) return undefined
  const count = (tasks: number): string => tasks.toLocaleString('en-US')
  const now = total.count + missing
  return `warning: run ${name} is of ${count(now)} tasks and their source has ${count(total.count)} now: the run stays open; restore the tasks to finish it, ${asNewRun} starts one of these alone`
}
