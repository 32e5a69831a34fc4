import { hash } from 'node:crypto'
import { isJsonList, isJsonObject, type Json, type JsonObject } from '../../../schema/index.ts'
import type { FoundRun } from '../../../store/index.ts'
import { isGatewayRun, storedConfig } from '../../stored-runs/stored-run.ts'

/** Settings of a run by name, as the flags or options that set them are called. */
export type Settings = Readonly<Record<string, Json>>

/** How deep settings are told apart; what lies deeper is compared as a whole. */
const maxDepth = 4

/** For each run the settings in which the runs of its environment differ, except those that only change its speed. */
export function differingSettings(runs: readonly FoundRun[]): ReadonlyMap<FoundRun, Settings> {
  const differing = new Map<FoundRun, Settings>()
  const kinds = Map.groupBy(runs, (run) => JSON.stringify([isGatewayRun(run), storedConfig(run).environment]))
  for (const alike of kinds.values()) {
    const settings = alike.map((run) => (isGatewayRun(run) ? {} : settingsOf(run)))
    const names = new Set(settings.flatMap((each) => Object.keys(each)))
    const isDifferent = (name: string): boolean => new Set(settings.map((each) => JSON.stringify(each[name]))).size > 1
    const shown = [...names].filter(isDifferent).toSorted()
    for (const [index, run] of alike.entries()) {
      const own = settings[index] ?? {}
      const entries = shown.flatMap((name) => (Object.hasOwn(own, name) ? [[name, own[name] ?? null] as const] : []))
      differing.set(run, Object.fromEntries(entries))
    }
  }
  return differing
}

/** What makes a run the experiment that it is. The model is left out: a list has it by itself. */
function settingsOf({ run }: FoundRun): Settings {
  const { environment, model, models, judge, attempts, limit, limits, sampling, ...config } = run.config
  const policy = objectOf(listOf(models).find((each) => objectOf(each)['name'] === model))
  const { wallTimeoutMs: _wallTimeoutMs, tailMs: _tailMs, ...measured } = objectOf(limits)
  const { policy: group } = objectOf(config['group'])
  const urls = listOf(policy['backends']).flatMap((backend) => objectOf(backend)['url'] ?? [])
  const { code } = run.provenance
  const parts: JsonObject = {
    attempts,
    limit,
    seed: config['seed'],
    ...(judge !== model && { judge }),
    ...objectOf(sampling),
    ...measured,
    group,
    agent: config['agent'],
    toolFormat: config['toolFormat'],
    captureTokens: config['captureTokens'],
    maxVersionsBehind: config['maxVersionsBehind'],
    env: objectOf(objectOf(environment)['options']),
    upstreamName: policy['upstreamName'],
    api: policy['api'],
    url: urls.length === 1 ? urls[0] : urls,
    sim: policy['simulator'],
    forkedFrom: config['forkedFrom'],
    ...(code !== undefined && { code: hash('sha256', JSON.stringify(code)).slice(0, 6) }),
  }
  return Object.fromEntries(flattened(parts, '', maxDepth))
}

function listOf(value: Json | undefined): readonly Json[] {
  return isJsonList(value) ? value : []
}

function objectOf(value: Json | undefined): JsonObject {
  return value !== undefined && isJsonObject(value) ? value : {}
}

/** Each value by its path, as `sim.skill`. What is not set, or empty, is left out. */
function* flattened(value: JsonObject, prefix: string, depth: number): Generator<[string, Json], void, void> {
  for (const [name, part] of Object.entries(value)) {
    if (part === undefined || part === null || (isJsonList(part) && part.length === 0)) continue
    if (isJsonObject(part) && depth > 1) yield* flattened(part, `${prefix}${name}.`, depth - 1)
    else yield [prefix + name, part]
  }
}
