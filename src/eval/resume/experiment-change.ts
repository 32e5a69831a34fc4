import { backendSecrets } from '../../inference/index.ts'
import { commonLength } from '../../kit/index.ts'
import { isJsonObject, type Json } from '../../schema/index.ts'
import { type FoundRun, redact, type Redacted, type RunFile } from '../../store/index.ts'
import { experimentOf } from '../experiment.ts'
import type { ResolvedRun } from '../resolve-run.ts'
import type { RunConfig } from '../run-config.ts'

interface ExperimentChange {
  /** The parts of the experiment that differ. Empty if only a value differs that is not stored, or if the run is a server's. */
  readonly parts: readonly string[]
  readonly text: string
}

export function experimentChange(existing: RunFile, resolved: ResolvedRun): ExperimentChange {
  const { config } = resolved
  // The stored config lacks its secrets, so the given one is compared and shown without them too.
  const shown = (each: RunConfig): Record<string, Json> =>
    comparable(experimentOf({ ...each, ...redacted(each, resolved).value }))
  const now = shown(config)
  // Older files may lack fields that every configuration has now: those are filled in. Fields that may be left out are not.
  const { forkedFrom: _forkedFrom, agent: _agent, toolFormat: _toolFormat, ...always } = config
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

/** For a person whose new run differs from an unfinished one only in what the environment's module decides. */
export function notContinuedNotice(runs: readonly FoundRun[], resolved: ResolvedRun): string | undefined {
  for (const { name, run } of othersOfSame(runs, resolved)) {
    if (run.state !== 'unfinished') continue
    const { parts, text } = experimentChange(run, resolved)
    if (!parts.every((part) => partsOfModule.has(part))) continue
    return `this is a new run: ${name} is unfinished and is not continued, because it began with other settings: ${text}. Use the former settings to continue it.`
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

const maxCharacters = 80
/** How much is shown of what two long values have in common, before the first difference. */
const maxCommon = 20

/** `attempts 4, now 1`; where both are objects, or lists of one length, the members that differ. */
export function describeDifference(path: string, before: unknown, now: unknown): string {
  if (isRecord(before) && isRecord(now)) {
    const keys = new Set([...Object.keys(before), ...Object.keys(now)])
    const changed = [...keys].filter((key) => JSON.stringify(before[key]) !== JSON.stringify(now[key]))
    return changed.map((key) => describeDifference(`${path}.${key}`, before[key], now[key])).join('; ')
  }
  if (Array.isArray(before) && Array.isArray(now) && before.length === now.length) {
    const changed = [...before.keys()].filter((index) => JSON.stringify(before[index]) !== JSON.stringify(now[index]))
    return changed.map((index) => describeDifference(`${path}[${index}]`, before[index], now[index])).join('; ')
  }
  const texts = [textOf(before), textOf(now)] as const
  const start = Math.max(0, commonLength(...texts) - maxCommon)
  const isLong = texts.every(({ length }) => length > maxCharacters)
  const [shownBefore, shownNow] = texts.map((text) => shortened(text, isLong ? start : 0))
  return `${path} ${shownBefore}, now ${shownNow}`
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function textOf(value: unknown): string {
  const text = JSON.stringify(value) ?? 'null'
  return text === 'null' ? 'not set' : text
}

function shortened(text: string, start: number): string {
  const end = start + maxCharacters - 1
  return `${start > 0 ? '…' : ''}${text.slice(start, end)}${text.length > end ? '…' : ''}`
}

/** Plain JSON without the secrets of the run's models, since one may have got into an option of the environment. */
export function redacted(value: object, { config, env }: ResolvedRun): Redacted<Record<string, Json>> {
  const backends = config.models.flatMap((model) => model.backends)
  const secrets = backends.flatMap((backend) => backendSecrets(backend, env))
  return redact(JSON.parse(JSON.stringify(value)) as Record<string, Json>, secrets)
}
