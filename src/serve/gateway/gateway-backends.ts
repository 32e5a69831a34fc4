import { MillraceError } from '../../errors/index.ts'
import {
  askedByUrl,
  engineOf,
  probeBackend,
  resolveModelConfig,
  type BackendConfig,
  type BackendFacts,
  type ModelConfig,
  type NamedModelInput,
} from '../../inference/index.ts'
import type { ModelFacts } from '../../gateway/index.ts'
import type { ApiName } from '../../schema/index.ts'

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
export type Finding = {
  readonly backend: string
  /** What it is to serve: the model that it was configured for, or that all backends were said to serve. */
  readonly serves?: Pick<ModelConfig, 'name' | 'upstreamName' | 'api'>
} & (
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
 * to be reached later, as long as another can, and it was said what it serves. Throws if none can be reached, or one
 * refuses our key: in the rotation it would fail its part of the requests.
 */
export async function findModels(options: FindModelsOptions): Promise<FoundModels> {
  const { env } = options
  const named = Object.entries(options.models ?? {}).map(([name, config]) =>
    resolveModelConfig({ model: name, models: { [name]: config }, defaults, env }),
  )
  const urls = options.backends.filter((backend) => backend !== builtIn)
  const given = await Promise.all(urls.map((url) => probeGiven(url, options)))
  const others = await Promise.all(named.flatMap((config) => probesOf(config, options)))
  const findings = [...given, ...others]
  const models = [...named, ...simulated(options), ...servedModels(given, options)].map((found) =>
    withEngines(found, findings),
  )
  const problem = findings.find((finding) => finding.problem)?.problem
  const isOneReachable = models.some(({ simulator }) => simulator) || findings.some(({ facts }) => facts)
  if (problem && !isOneReachable) throw problem
  const refusal = findings.find((finding) => finding.problem?.code === 'model_auth')?.problem
  if (refusal) throw refusal
  if (options.model === undefined) refuseUnknown(given)
  if (models.length > 0) return { models: distinct(models), facts: factsOf(models, findings), findings }
  throw problem ?? nothingServed(urls)
}

/** What it serves will not be asked a second time, so it would be missing for good. */
function refuseUnknown(given: readonly Finding[]): void {
  const problem = given.find((finding) => finding.problem)?.problem
  if (!problem) return
  const step =
    'What it serves is not known until it answers: name that with --model, or in --config, to start without it.'
  throw new MillraceError(problem.code, `${problem.rawMessage} ${step}`, { data: problem.data, cause: problem })
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
  const answer = findings.find(({ facts }) => facts) ?? findings[0]
  if (!answer) return undefined
  const { api } = askedByUrl(answer.backend)
  const apis = answer.facts?.apis ?? [api]
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
    models.map(({ name, upstreamName = name, api, backends }) => {
      const urls = new Set(backends.map(({ url }) => url))
      const known = findings.filter(({ backend }) => urls.has(backend))
      // In other APIs than Chat nobody asks for tokens, whatever the backend would tell in that one.
      const tokens = api === 'chat' ? known.flatMap((finding) => capturesOf(finding, upstreamName)) : []
      const lengths = known.flatMap(({ facts: told }) =>
        (told?.models ?? []).flatMap(({ id, contextLength }) =>
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

/** Whether replies of a model have their tokens. Of all that a server lists one was asked, and speaks only for itself. */
function capturesOf({ facts, serves }: Finding, upstreamName: string): boolean[] {
  const asked = serves ? (serves.upstreamName ?? serves.name) : facts?.models[0]?.id
  if (!facts?.tokenFields) return []
  const isForAll = facts.kind === 'openai' || facts.kind === 'anthropic' || !facts.apis.includes('chat')
  const { ids, logprobs } = facts.tokenFields
  return isForAll || asked === upstreamName ? [ids && logprobs] : []
}

function probesOf(config: ModelConfig, options: FindModelsOptions): Promise<Finding>[] {
  const { api, upstreamName = config.name } = config
  return config.backends.map(async (backend) => ({
    ...(await probe({ ...backend, api, model: upstreamName }, options)),
    serves: config,
  }))
}

/** A backend of which nothing but its url was said. */
async function probeGiven(url: string, options: FindModelsOptions): Promise<Finding> {
  const { model } = options
  const finding = await probe({ url, ...askedByUrl(url), ...(model !== undefined && { model }) }, options)
  const { problem } = finding
  if (problem?.code === 'model_auth') return { backend: url, problem: withConfigHint(problem) }
  if (model === undefined) return finding
  return { ...finding, serves: { name: model, api: apiOf([finding]) ?? 'chat' } }
}

function withConfigHint(problem: MillraceError): MillraceError {
  const step =
    'A backend with a key of its own, or that knows Messages only, goes into --config: apiKeyEnv, api: messages.'
  return new MillraceError(problem.code, `${problem.rawMessage} ${step}`, { data: problem.data, cause: problem })
}

interface ProbedAs {
  readonly api: ApiName
  readonly model?: string
}

async function probe(
  asked: Partial<BackendConfig> & Pick<BackendConfig, 'url' | 'apiKeyEnv'> & ProbedAs,
  options: FindModelsOptions,
): Promise<Finding> {
  const { env, signal } = options
  const { url, api, model, apiKeyEnv, headers = {}, caFile } = asked
  const config: BackendConfig = { url, apiKeyEnv, headers, ...(caFile !== undefined && { caFile }) }
  try {
    const facts = await probeBackend(config, {
      env,
      signal,
      api,
      ...(model !== undefined && { model }),
    })
    await refuseWithoutVersion(config, facts, options)
    return { backend: url, facts }
  } catch (error) {
    signal.throwIfAborted()
    const problem = MillraceError.from(error, 'internal')
    // A mistake in the configuration does not mend itself.
    if (problem.code === 'config_invalid' || problem.code === 'internal') throw problem
    return { backend: url, problem }
  }
}

/** Nothing where it was said to be, and everything one step below: the url stops too early, whatever is asked there. */
async function refuseWithoutVersion(
  backend: BackendConfig,
  { models, apis }: BackendFacts,
  { env, signal }: FindModelsOptions,
): Promise<void> {
  if (models.length > 0 || apis.length > 0) return
  const url = `${backend.url.replace(/\/+$/, '')}/v1`
  const below = await probeBackend({ ...backend, url }, { env, signal }).catch(() => undefined)
  signal.throwIfAborted()
  if (!below || below.models.length === 0) return
  throw new MillraceError(
    'config_invalid',
    `${backend.url} lists no models and answers in no API; did you mean ${url}?`,
  )
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
