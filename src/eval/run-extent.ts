import type { RunFile } from '../store/index.ts'

/**
 * How many tasks a run is of, from the start of the source; null for all there are. A sitting may ask for fewer, to see some
 * results first, or for more: the run is of as many as its widest sitting asked for, and complete when those have ended.
 */
export type RunExtent = number | null

export function widestExtent(existing: RunFile | undefined, limit: RunExtent): RunExtent {
  if (!existing) return limit
  const before = existing.config['limit']
  return limit === null || typeof before !== 'number' ? null : Math.max(before, limit)
}

/** What a person should hear who asks for less than the run is of; undefined if they do not. */
export function narrowNotice(name: string, extent: RunExtent, limit: RunExtent): string | undefined {
  if (limit === null || limit === extent) return undefined
  const begun = extent === null ? 'all tasks' : `${extent.toLocaleString('en-US')} tasks`
  const here = limit === 1 ? 'the first one' : `the first ${limit.toLocaleString('en-US')}`
  const next = extent === null ? 'leave out --limit to finish it' : `--limit ${extent} finishes it`
  return `run ${name} is of ${begun}: this sitting does ${here} and leaves it open; ${next}, --new starts another run`
}
