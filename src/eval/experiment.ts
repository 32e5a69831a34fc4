import { hash } from 'node:crypto'
import { existsSync, readFileSync, realpathSync } from 'node:fs'
import { dirname, join, relative, sep } from 'node:path'
import { fileURLToPath } from 'node:url'
import { isJsonObject, type Json } from '../schema/index.ts'
import type { RunConfig } from './run-config.ts'

/** The parts that make two runs the same experiment. Its speed and number of tasks are not among them. */
export function experimentOf(config: RunConfig): Record<string, Json> {
  const { environment, model, models, judge, attempts, group, limits, sampling, seed, captureTokens } = config
  const { agent, toolFormat } = config
  // By name, and the urls sorted: neither the order of models nor that of a model's backends decides who is asked what.
  const served = models.map(({ name, upstreamName, backends, simulator, api }) => [
    name,
    { upstreamName, urls: backends.map(({ url }) => url).toSorted(), simulator, api },
  ])
  // A rollout that runs out of these ends without a score: a later launch may give it more.
  const { wallTimeoutMs: _wallTimeoutMs, tailMs: _tailMs, ...measured } = limits
  const { name, module = null, addresses = [] } = environment
  const given = Object.entries(environment.options ?? {}).filter(([option]) => !addresses.includes(option))
  const experiment = {
    environment: { name, module, options: Object.fromEntries(given) },
    model,
    models: Object.fromEntries(served),
    judge,
    attempts,
    group,
    limits: measured,
    sampling,
    seed,
    ...(agent && { agent }),
    ...(toolFormat && { toolFormat }),
    captureTokens,
    ...(config.forkedFrom && { forkedFrom: config.forkedFrom }),
  }
  return sorted(JSON.parse(JSON.stringify(experiment)) as Record<string, Json>)
}

export function experimentDigest(config: RunConfig): string {
  return hash('sha256', JSON.stringify(experimentOf(config))).slice(0, 16)
}

/** Its path in its project, so that it is the same one from every working directory, and after a move. */
export function moduleName(specifier: string): string {
  const path = realPath(fileURLToPath(specifier))
  for (let folder = dirname(path); ; folder = dirname(folder)) {
    const description = join(folder, 'package.json')
    if (existsSync(description) || existsSync(join(folder, '.git'))) {
      return [...packageName(description), ...relative(folder, path).split(sep)].join('/')
    }
    if (folder === dirname(folder)) return path
  }
}

function realPath(path: string): string {
  try {
    return realpathSync(path)
  } catch {
    // It was deleted since it was loaded.
    return path
  }
}

function packageName(description: string): readonly string[] {
  try {
    const found: unknown = JSON.parse(readFileSync(description, 'utf8'))
    const name = isJsonObject(found) ? found['name'] : undefined
    return typeof name === 'string' ? [name] : []
  } catch {
    return []
  }
}

function sorted<Value extends Json>(value: Value): Value
function sorted(value: Json): Json {
  if (Array.isArray(value)) return value.map((member: Json) => sorted(member))
  if (!isJsonObject(value)) return value
  const names = Object.keys(value).toSorted()
  return Object.fromEntries(names.map((name) => [name, sorted(value[name] ?? null)]))
}
