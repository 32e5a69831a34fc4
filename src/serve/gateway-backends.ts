import { MillraceError } from '../errors/index.ts'
import {
  engineOf,
  probeBackend,
  resolveModelConfig,
  type BackendConfig,
  type BackendFacts,
  type ModelConfig,
} from '../inference/index.ts'
import type { ModelFacts } from '../gateway/index.ts'
import type { ApiName } from '../schema/index.ts'
import type { NamedModelInput } from './gateway-config.ts'

type Environment = Readonly<Record<string, string | undefined>>

export interface FindModelsOptions {
  /** Urls, or `sim` for the built-in simulator. */
  readonly backends: readonly string[]
  /** What all of `backends` serve; without it, every model that they list. */
  readonly model?: string
  /** Models that are known by name, with backends of their own. */
  readonly models?: Readonly<Record<string, NamedModelInput>>
  readonly env: Environment
  readonly signal: AbortSignal
}

/** What a backend said when it was asked, or why it did not. */
export type Finding = { readonly backend: string } & (
  | { readonly facts: BackendFacts; readonly problem?: undefined }
  | { readonly facts?: undefined; readonly problem: MillraceError }
)

export interface FoundModels {
  readonly models: readonly ModelConfig[]
  /** By the model's name, as far as its backends told. */
  readonly facts: Readonly<Record<string, ModelFacts>>
  /** One for each backend that was asked. */
  readonly findings: readonly Finding[]
}

const builtIn = 'sim'

/** A gateway has many clients, and what a backend can take at once is known by the backend: it says so when it is too much. */
const defaults = { maxConcurrency: 1024 } as const

/**
 * Asks every backend what it is, all at once, and makes the models of what they answer. One that cannot be reached is left
 * to be reached later, as long as another can; throws if none can.
 */
export async function findModels(options: FindModelsOptions): Promise<FoundModels> {
  const { env, model } = options
  const named = Object.entries(options.models ?? {}).map(([name, config]) =>
    resolveModelConfig({ model: name, models: { [name]: { ...config, name: config.name ?? name } }, defaults, env }),
  )
  const urls = options.backends.filter((backend) => backend !== builtIn)
  const given = await Promise.all(urls.map((url) => probe({ url, ...(model !== undefined && { model }) }, options)))
  const others = await Promise.all(named.flatMap((config) => probesOf(config, options)))
  const findings = [...given, ...others]
  const models = [...named, ...simulated(options), ...servedModels(given, options)].map((found) =>
    withEngines(found, findings),
  )
  const problem = findings.find((finding) => finding.problem)?.problem
  const isOneReachable = models.some(({ simulator }) => simulator) || findings.some(({ facts }) => facts)
  if (problem && !isOneReachable) throw problem
  if (models.length > 0) return { models: distinct(models), facts: factsOf(models, findings), findings }
  throw problem ?? nothingServed(urls)
}

function simulated({ backends, model, env }: FindModelsOptions): ModelConfig[] {
  if (!backends.includes(builtIn)) return []
  // Where there are others, the name that was given is theirs.
  const name = backends.every((backend) => backend === builtIn) ? (model ?? builtIn) : builtIn
  return [resolveModelConfig({ model: { name, simulator: {} }, defaults, env })]
}

/** One model on all of them if it was named, else each with those that list it. */
function servedModels(findings: readonly Finding[], { model, env }: FindModelsOptions): ModelConfig[] {
  if (findings.length === 0) return []
  const resolve = (name: string, where: readonly Finding[]): ModelConfig => {
    const api = apiOf(where)
    const backends = where.map(({ backend }) => ({ url: backend }))
    return resolveModelConfig({ model: { name, backends, ...(api && { api }) }, defaults, env })
  }
  if (model !== undefined) return [resolve(model, findings)]
  const offers = new Map<string, Finding[]>()
  for (const finding of findings) {
    for (const { id } of finding.facts?.models ?? []) offers.set(id, [...(offers.get(id) ?? []), finding])
  }
  return [...offers].map(([name, where]) => resolve(name, where))
}

/** Chat where that is spoken, because only its replies tell about tokens. */
function apiOf(findings: readonly Finding[]): ApiName | undefined {
  const apis = findings.find(({ facts }) => facts)?.facts?.apis ?? []
  return apis.includes('chat') ? 'chat' : apis[0]
}

/** With what serves it, where its config does not say. */
function withEngines(config: ModelConfig, findings: readonly Finding[]): ModelConfig {
  const backends = config.backends.map((backend): BackendConfig => {
    const facts = findings.find(({ backend: url }) => url === backend.url)?.facts
    const engine = facts && engineOf(facts.kind)
    return engine ? { engine, ...backend } : backend
  })
  return { ...config, backends }
}

/** What holds for all backends of a model, because a request may go to any of them. */
function factsOf(models: readonly ModelConfig[], findings: readonly Finding[]): FoundModels['facts'] {
  return Object.fromEntries(
    models.map(({ name, upstreamName = name, backends }) => {
      const urls = new Set(backends.map(({ url }) => url))
      const known = findings.flatMap(({ backend, facts }) => (facts && urls.has(backend) ? [facts] : []))
      const tokens = known.flatMap(({ tokenFields }) => (tokenFields ? [tokenFields.ids && tokenFields.logprobs] : []))
      const lengths = known.flatMap((facts) =>
        facts.models.flatMap(({ id, contextLength }) =>
          id === upstreamName && contextLength !== undefined ? [contextLength] : [],
        ),
      )
      const facts: ModelFacts = {
        ...(tokens.length > 0 && { capturesTokens: tokens.every(Boolean) }),
        ...(lengths.length > 0 && { contextLength: Math.min(...lengths) }),
      }
      return [name, facts]
    }),
  )
}

function probesOf(config: ModelConfig, options: FindModelsOptions): Promise<Finding>[] {
  const { api, upstreamName = config.name } = config
  return config.backends.map((backend) => probe({ ...backend, api, model: upstreamName }, options))
}

async function probe(
  asked: Partial<BackendConfig> & { readonly url: string; readonly api?: ApiName; readonly model?: string },
  { env, signal }: FindModelsOptions,
): Promise<Finding> {
  const { url, api, model, apiKeyEnv = 'OPENAI_API_KEY', headers = {}, caFile } = asked
  const config: BackendConfig = { url, apiKeyEnv, headers, ...(caFile !== undefined && { caFile }) }
  try {
    const facts = await probeBackend(config, {
      env,
      signal,
      ...(api && { api }),
      ...(model !== undefined && { model }),
    })
    return { backend: url, facts }
  } catch (error) {
    signal.throwIfAborted()
    const problem = MillraceError.from(error, 'internal')
    // A mistake in the configuration does not mend itself.
    if (problem.code === 'config_invalid' || problem.code === 'internal') throw problem
    return { backend: url, problem }
  }
}

function distinct(models: readonly ModelConfig[]): readonly ModelConfig[] {
  const names = new Set<string>()
  for (const { name } of models) {
    if (names.has(name)) {
      throw new MillraceError('config_invalid', `two models are called ${name}; give one of them another name`)
    }
    names.add(name)
  }
  return models
}

function nothingServed(urls: readonly string[]): MillraceError {
  return urls.length === 0
    ? new MillraceError('usage', 'which backend? Add --backend <url>; --backend sim is built in and needs nothing')
    : new MillraceError('model_not_found', `${urls.join(', ')} lists no models; name the one it serves with --model`)
}
