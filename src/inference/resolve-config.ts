import { MillraceError } from '../errors/index.ts'
import { andList, nearestName, type Variables } from '../kit/index.ts'
import { describeIssues, isJsonObject, safeParse } from '../schema/index.ts'
import type { Backend } from '../apis/index.ts'
import {
  type BackendConfig,
  backendUrl,
  isAnthropicHost,
  isOpenAiHost,
  lacksKey,
  type ModelConfig,
  type ModelConfigInput,
  modelConfigSchema,
  type NamedModelInput,
} from './config.ts'

export interface ResolveModelOptions {
  /** `sim`, a name in `models`, a name to ask the endpoint of the environment for, or a config. */
  readonly model: string | ModelConfigInput
  readonly models?: Readonly<Record<string, NamedModelInput>>
  /** Values for fields that the model's own config leaves open, instead of the schema's defaults. */
  readonly defaults?: Partial<ModelConfigInput>
  /** The user's own backends, by model name: a model that has some needs neither a url nor a key. */
  readonly standIns?: Readonly<Record<string, readonly Backend[]>>
  readonly env: Variables
  /** The model is not expected to be asked: a missing key is reported only when it is. */
  readonly isUnasked?: boolean
}

/** The default server of a model whose config names none, and the environment variables for its url and its key. */
interface Provider {
  readonly name: string
  readonly url: string
  readonly urlEnv: string
  readonly apiKeyEnv: string
}

const openAi: Provider = {
  name: 'OpenAI',
  url: 'https://api.openai.com/v1',
  urlEnv: 'OPENAI_BASE_URL',
  apiKeyEnv: 'OPENAI_API_KEY',
}
const anthropic: Provider = {
  name: 'Anthropic',
  url: 'https://api.anthropic.com/v1',
  urlEnv: 'ANTHROPIC_BASE_URL',
  apiKeyEnv: 'ANTHROPIC_API_KEY',
}

/** Turns what a user named or wrote into a complete config: every default filled in, every mistake reported with its field. */
export function resolveModelConfig(options: ResolveModelOptions): ModelConfig {
  const { model, models = {}, defaults, standIns = {}, env, isUnasked } = options
  const input = { ...defaults, ...inputFor(model, models) }
  const hasStandIn = Object.hasOwn(standIns, input.name)
  const config = parse(hasStandIn ? input : withProvider(input, env))
  if (config.simulator && config.backends.length > 0) {
    throw invalid(config.name, 'it has both backends and a simulator. Remove one of them.')
  }
  if (hasStandIn || isUnasked) return config
  for (const backend of config.backends) {
    const { hostname } = backendUrl(backend.url)
    const provider = isOpenAiHost(hostname) ? openAi : isAnthropicHost(hostname) ? anthropic : undefined
    if (!lacksKey(backend, env)) continue
    const names = typeof model === 'string' ? Object.keys(models) : []
    if (provider) throw missingKey(config.name, { ...provider, apiKeyEnv: backend.apiKeyEnv }, names)
    // If the config names a variable for the key and it is not set, that must not mean that no key is needed. The usual
    // variables are exempt: a complete config has one even if nobody wrote it, and self-hosted servers often want no key.
    if (!isUsual(backend.apiKeyEnv)) throw unsetKey(config.name, backend)
  }
  return config
}

function withProvider(input: ModelConfigInput, env: Variables): ModelConfigInput {
  const { simulator, backends = [] } = input
  if (simulator || !Array.isArray(backends)) return input
  const api = input.api ?? (backends.length === 0 && isForAnthropic(input, env) ? 'messages' : 'chat')
  const provider = providerFor(api)
  const served = backends.length === 0 ? [{ url: defaultUrl(provider, env) }] : backends
  return { ...input, api, backends: served.map((backend) => withKey(backend, provider)) }
}

/** A model named `claude-…` without backends means Anthropic, unless OPENAI_BASE_URL names a server for everything. */
function isForAnthropic({ name, upstreamName = name }: ModelConfigInput, env: Variables): boolean {
  return typeof upstreamName === 'string' && upstreamName.startsWith('claude-') && !env[openAi.urlEnv]
}

function withKey<Config>(backend: Config, { apiKeyEnv }: Provider): Config {
  return isJsonObject(backend) && !('apiKeyEnv' in backend) ? { ...backend, apiKeyEnv } : backend
}

function inputFor(
  model: string | ModelConfigInput,
  models: Readonly<Record<string, NamedModelInput>>,
): ModelConfigInput {
  if (typeof model !== 'string') return requireNamed(model)
  if (model.trim() === '') {
    throw new MillraceError('config_invalid', "the model has no name. Name one with -m (model), or use -m sim ('sim').")
  }
  if (Object.hasOwn(models, model)) return named(model, models[model] as NamedModelInput)
  return model === 'sim' ? { name: 'sim', simulator: {} } : { name: model }
}

/** Checks configs of callers without types. They need a `name`: only in a file of models does a key name a config. */
function requireNamed(model: ModelConfigInput | undefined): ModelConfigInput {
  if (!isJsonObject(model)) {
    throw new MillraceError(
      'config_invalid',
      `which model? Give its name, such as 'sim', which is built in and needs no key, or a config with a \`name\`, not ${String(model)}`,
    )
  }
  if (model.name === undefined) {
    throw new MillraceError(
      'config_invalid',
      "the model's config has no `name`: set one, which the run then uses for the model",
    )
  }
  return model
}

/** A run calls a model by its key; a `name` inside the config becomes the name that its backends know. */
function named(key: string, input: NamedModelInput): ModelConfigInput {
  const { name = key, ...config } = input
  return name === key ? { ...config, name } : { ...config, name: key, upstreamName: config.upstreamName ?? name }
}

function parse(input: ModelConfigInput): ModelConfig {
  const parsed = safeParse(modelConfigSchema, input)
  if (parsed.success) return parsed.data
  const name = typeof input.name === 'string' ? input.name : '(without a name)'
  throw invalid(name, `${describeIssues(parsed.error.issues, input)}. Correct that in its config.`)
}

export function defaultBackendUrl(api: ModelConfig['api'], env: Variables): string {
  return defaultUrl(providerFor(api), env)
}

interface ApiAccess {
  readonly api: ModelConfig['api']
  readonly apiKeyEnv: string
}

/** How to ask a server of which only the url is known: its API, and the variable with the key. */
export function apiAccessOfUrl(url: string): ApiAccess {
  return apiAccessOf(isAnthropicHost(backendUrl(url).hostname) ? 'messages' : 'chat')
}

export function apiAccessOf(api: ModelConfig['api']): ApiAccess {
  return { api, apiKeyEnv: providerFor(api).apiKeyEnv }
}

function providerFor(api: ModelConfig['api']): Provider {
  return api === 'messages' ? anthropic : openAi
}

function defaultUrl({ url, urlEnv }: Provider, env: Variables): string {
  const given = env[urlEnv]
  if (!given) return url
  if (!/^https?:/.test(given) || !URL.canParse(given)) {
    throw new MillraceError('config_invalid', `${urlEnv} is a url such as http://localhost:8000/v1, not ${given}`)
  }
  // Anthropic's clients add the version themselves, so their variable usually ends before it; OpenAI's ends after it.
  return urlEnv === anthropic.urlEnv && !/\/v1\/*$/.test(given) ? `${given.replace(/\/+$/, '')}/v1` : given
}

function missingKey(model: string, { name, urlEnv, apiKeyEnv }: Provider, known: readonly string[]): MillraceError {
  const meant = nearestName(
    model,
    [...known, 'sim'].filter((other) => other !== model),
  )
  const hint = meant === undefined ? '' : `did you mean "${meant}"? `
  const isGiven = known.length === 0 || known.includes(model)
  const why = isGiven
    ? `is served by ${name} and`
    : `is not in the given models (${andList(known)}), so ${name} would serve it, and`
  const elsewhere = known.includes(model)
    ? `name another server in its config, as \`backends: [{ url: … }]\``
    : `set ${urlEnv} to another server`
  const step = `Set ${apiKeyEnv}, ${elsewhere}, or use the built-in model sim, which needs no key.`
  return new MillraceError('model_auth', `${hint}model ${model} ${why} ${apiKeyEnv} is not set. ${step}`)
}

function isUsual(apiKeyEnv: string): boolean {
  return apiKeyEnv === openAi.apiKeyEnv || apiKeyEnv === anthropic.apiKeyEnv
}

function unsetKey(model: string, { url, apiKeyEnv }: BackendConfig): MillraceError {
  const { host } = backendUrl(url)
  return invalid(
    model,
    `\`apiKeyEnv\` of its backend ${host} names ${apiKeyEnv}, which is not set: set it, or leave out \`apiKeyEnv\``,
  )
}

function invalid(name: string, detail: string): MillraceError {
  return new MillraceError('config_invalid', `model ${name}: ${detail}`)
}
