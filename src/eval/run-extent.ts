import type { RunFile } from '../store/index.ts'
import { asNewRun } from './_as-new-run.ts'

/** How many tasks a sitting reads, as far as that is known. */
type TaskTotal = { readonly count: number; readonly exact: boolean } | undefined

/**
 * How many tasks a run is of, from the start of the source; null for all there are. A sitting may ask for fewer, to see some
 * results first, or for more: the run is of as many as its widest sitting asked for, and complete when those have ended.
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

/** What a person should hear who asks for less than the run is of; undefined if they do not. */
export function narrowNotice(name: string, extent: RunExtent, limit: RunExtent): string | undefined {
  if (limit === null || limit === extent) return undefined
  const begun = extent === null ? 'all tasks' : `${extent.toLocaleString('en-US')} tasks`
  const here = limit === 1 ? 'the first one' : `the first ${limit.toLocaleString('en-US')}`
  const next = extent === null ? 'leave out --limit (limit) to finish it' : `--limit ${extent} (limit) finishes it`
  return `run ${name} is of ${begun}: this sitting does ${here} and leaves it open; ${next}, ${asNewRun} starts another`
}

/** How many tasks a run was found to be of, whichever of its sittings knew; undefined while none does. */
export function knownTasks(before: number | undefined, total: TaskTotal): number | undefined {
  const now = total?.exact ? total.count : 0
  return Math.max(before ?? 0, now) || undefined
}

/** What the sittings so far have found. */
export function tasksFound({ provenance }: RunFile): number | undefined {
  const { tasks } = provenance
  return typeof tasks === 'number' ? tasks : undefined
}

/**
 * What a person should hear whose source of tasks has become longer; undefined if it has not, or if that is not known. A
 * run that had as many as it asked for says nothing of how many there were.
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

/** How many of the tasks that a sitting should find, because the run was of them before, its source does not have any more. */
export function missingTasks(known: number | undefined, limit: RunExtent, total: TaskTotal): number {
  if (known === undefined || !total?.exact) return 0
  return Math.max(0, Math.min(known, limit ?? known) - total.count)
}

/** What a person should hear whose source of tasks has become shorter; undefined if it has not. */
export function missingNotice(name: string, missing: number, total: TaskTotal): string | undefined {
  if (missing === 0 || !total) return undefined
  const count = (tasks: number): string => tasks.toLocaleString('en-US')
  const now = total.count + missing
  return `warning: run ${name} is of ${count(now)} tasks and their source has ${count(total.count)} now: the run stays open; restore the tasks to finish it, ${asNewRun} starts one of these alone`
}
