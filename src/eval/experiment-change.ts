import { isJsonObject, type Json } from '../schema/index.ts'
import type { FoundRun, RunFile } from '../store/index.ts'
import { describeDifference } from './_describe-difference.ts'
import { redacted } from './_redacted-config.ts'
import { experimentOf } from './experiment.ts'
import type { ResolvedRun } from './resolve-run.ts'
import type { RunConfig } from './run-config.ts'

export interface ExperimentChange {
  /** The parts of the experiment that differ. Empty if only a value differs that is not stored, or if the run is a server's. */
  readonly parts: readonly string[]
  readonly text: string
}

/** How a stored run differs from the experiment that is asked for. */
export function experimentChange(existing: RunFile, resolved: ResolvedRun): ExperimentChange {
  const { config } = resolved
  // The stored config lacks its secrets, so the given one is compared and shown without them too.
  const shown = (each: RunConfig): Record<string, Json> =>
    comparable(experimentOf({ ...each, ...redacted(each, resolved).value }))
  const now = shown(config)
  // Older files may lack fields that every configuration has now: those are filled in. Fields that may be left out are not.
  const { forkedFrom: _forkedFrom, toolFormat: _toolFormat, ...always } = config
  const before = shown({ ...always, ...existing.config })
  const parts = Object.keys({ ...before, ...now }).filter(
    (key) => JSON.stringify(before[key]) !== JSON.stringify(now[key]),
  )
  const differences = parts.map((key) => describeDifference(key, before[key], now[key]))
  if (isServed(existing.config) && !isServed(config)) differences.push('it belongs to a server (millrace serve)')
  else if (parts.length === 0) differences.push('a value that run.json does not have, such as a secret')
  return { parts, text: differences.join('; ') }
}

/** The parts that an environment's module decides, so that the same command may ask for another experiment than before. */
const partsOfModule: ReadonlySet<string> = new Set(['environment', 'group', 'limits', 'sampling', 'toolFormat'])

/**
 * A notice for a person whose command starts a new run although an unfinished one of the same environment and model differs only
 * in what the environment's module decides; undefined if there is no such run.
 */
export function notContinuedNotice(runs: readonly FoundRun[], resolved: ResolvedRun): string | undefined {
  for (const { name, run } of othersOfSame(runs, resolved)) {
    if (run.state !== 'unfinished') continue
    const { parts, text } = experimentChange(run, resolved)
    if (!parts.every((part) => partsOfModule.has(part))) continue
    return `this is a new run: ${name} is unfinished and is not continued, because it began with other settings: ${text}. With the former ones the same command continues it.`
  }
  return undefined
}

/** A notice for a person who wants to continue a run and has none that matches; empty if no run is similar. */
export function nearestRunNotice(runs: readonly FoundRun[], resolved: ResolvedRun): string {
  const [nearest] = othersOfSame(runs, resolved)
  if (!nearest) return ''
  const { text } = experimentChange(nearest.run, resolved)
  return `run ${nearest.name} began with other settings: ${text}. Repeat those (all are in its run.json), or start a new run.`
}

/** Other experiments with the same environment and model. */
function othersOfSame(runs: readonly FoundRun[], resolved: ResolvedRun): readonly FoundRun[] {
  return runs.filter(({ run }) => run.configDigest !== resolved.digest && isOfSame(run.config, resolved))
}

function isOfSame(before: RunFile['config'], { config }: ResolvedRun): boolean {
  const { environment, model } = before
  const isSameEnvironment =
    environment !== undefined && isJsonObject(environment) && environment['name'] === config.environment.name
  return isSameEnvironment && model === config.model && isServed(before) === isServed(config)
}

function isServed(config: object): boolean {
  return 'isServed' in config && config.isServed === true
}

/** Leaves out the size of a group: it is the number of attempts, which is compared by itself. */
function comparable(experiment: Record<string, Json>): Record<string, Json> {
  const { group } = experiment
  if (group === undefined || !isJsonObject(group)) return experiment
  const { size: _size, ...rules } = group
  return { ...experiment, group: rules }
}
