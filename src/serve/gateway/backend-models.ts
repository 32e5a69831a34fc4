import { MillraceError } from '../../errors/index.ts'
import type { ModelFacts } from '../../gateway/index.ts'
import {
  apiAccessOfUrl,
  apiAccessOf,
  type BackendConfig,
  type BackendFacts,
  engineOf,
  listedModels,
  type ModelConfig,
  type ModelConfigInput,
  type NamedModelInput,
  probeBackend,
  resolveModelConfig,
  type ServedModel,
  shownUrl,
} from '../../inference/index.ts'
import type { Variables } from '../../kit/index.ts'
import type { ApiName } from '../../schema/index.ts'

export interface FindModelsOptions {
  /** Urls, or `sim` for the built-in simulator. */
  readonly backends: readonly string[]
  /** What all of `backends` serve; without it, every model that they list. */
  readonly model?: string
  readonly models?: Readonly<Record<string, NamedModelInput>>
  /** For models whose config does not say: whether their tokens are exact, and how their backends are chosen. */
  readonly defaults?: Partial<Pick<ModelConfigInput, 'tokens' | 'tokenizer' | 'routing'>>
  readonly env: Variables
  /** What must not be shown if a backend says it, such as values that were filled in from variables. */
  readonly secrets?: readonly string[] | undefined
  readonly signal: AbortSignal
}

export type ProbeResult = {
  readonly backend: string
  /** What it is to serve: the model that it was configured for, or that all backends were said to serve. */
  readonly serves?: Pick<ModelConfig, 'name' | 'upstreamName' | 'api'>
} & (
  | { readonly facts: BackendFacts; readonly problem?: undefined }
  | { readonly facts?: undefined; readonly problem: MillraceError }
)

/** A gateway has many clients, and what a backend can take at once is known by the backend: it says so when it is too much. */
export const gatewayDefaults = { maxConcurrency: 1024 } as const

type Naming = Pick<FindModelsOptions, 'model'>

export function servedModels(
  probeResults: readonly ProbeResult[],
  { env, defaults, ...naming }: Pick<FindModelsOptions, 'env' | 'defaults'> & Naming,
): ModelConfig[] {
  return Array.from(serversByName(probeResults, naming), ([name, where]) => {
    const api = apiOf(where)
    const backends = where.map(({ backend }) => ({ url: backend }))
    return resolveModelConfig({
      model: { name, backends, ...(api && { api }) },
      defaults: { ...gatewayDefaults, ...defaults },
      env,
    })
  })
}

/** A model is asked in one API, wherever a request for it goes. What is wrong with one whose backends speak different ones. */
export function apiConflict(probeResults: readonly ProbeResult[], naming: Naming): MillraceError | undefined {
  for (const [name, where] of serversByName(probeResults, naming)) {
    const answered = where.filter(({ facts }) => facts && facts.apis.length > 0)
    const [first] = answered
    const other = first && answered.find((result) => apiOf([result]) !== apiOf([first]))
    if (!other) continue
    const [one, another] = [first, other].map((result) => `in ${apiOf([result])} by ${shownUrl(result.backend)}`)
    const message = `model ${name} is served ${one} and ${another}, but a model can have only one API. Name two models in --config (models), each with its backends and their \`api\`.`
    return new MillraceError('config_invalid', message)
  }
  return undefined
}

function serversByName(
  probeResults: readonly ProbeResult[],
  { model }: Naming,
): ReadonlyMap<string, readonly ProbeResult[]> {
  if (model !== undefined) return new Map(probeResults.length === 0 ? [] : [[model, probeResults]])
  const offers = new Map<string, ProbeResult[]>()
  for (const result of probeResults) {
    for (const { id } of result.facts?.models ?? []) offers.set(id, [...(offers.get(id) ?? []), result])
  }
  return offers
}

/** Chat where that is spoken, because only its replies tell about tokens. */
function apiOf(probeResults: readonly ProbeResult[]): ApiName | undefined {
  const answer = probeResults.find(({ facts }) => facts) ?? probeResults[0]
  if (!answer) return undefined
  const { api } = apiAccessOfUrl(answer.backend)
  const apis = answer.facts?.apis ?? [api]
  return apis.includes('chat') ? 'chat' : apis[0]
}

/** Whether it said something that does not mend itself: every request that it got would fail. */
export function isUnusable({ problem }: ProbeResult): boolean {
  return problem !== undefined && !problem.retryable
}

/** Only with those of its backends that may be of use, now or later, by what was found of them. */
export function withoutUnusable(config: ModelConfig, probeResults: readonly ProbeResult[]): ModelConfig {
  const unusable = probeResults.filter(
    (result) => isUnusable(result) && (result.serves?.name ?? config.name) === config.name,
  )
  const urls = new Set(unusable.map(({ backend }) => backend))
  return urls.size === 0 ? config : { ...config, backends: config.backends.filter(({ url }) => !urls.has(url)) }
}

/** With what serves it, where its config does not say. */
export function withEngines(config: ModelConfig, probeResults: readonly ProbeResult[]): ModelConfig {
  const backends = config.backends.map((backend): BackendConfig => {
    const facts = probeResults.find(({ backend: url }) => url === backend.url)?.facts
    const engine = facts && engineOf(facts.kind)
    return engine ? { engine, ...backend } : backend
  })
  return { ...config, backends }
}

/** What holds for all backends of a model, because a request may go to any of them. */
export function factsOf(
  models: readonly ModelConfig[],
  probeResults: readonly ProbeResult[],
): Readonly<Record<string, ModelFacts>> {
  return Object.fromEntries(
    models.map(({ name, upstreamName = name, api, backends }) => {
      const urls = new Set(backends.map(({ url }) => url))
      const known = probeResults.filter(({ backend }) => urls.has(backend))
      // In other APIs than Chat nobody asks for tokens, whatever the backend would tell in that one.
      const tokens = api === 'chat' ? known.flatMap((result) => capturesOf(result, upstreamName)) : []
      const lengths = known.flatMap(({ facts: probed }) =>
        (probed?.models ?? []).flatMap(({ id, contextLength }) =>
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
function capturesOf({ facts, serves }: ProbeResult, upstreamName: string): boolean[] {
  const asked = serves ? (serves.upstreamName ?? serves.name) : facts?.models[0]?.id
  if (!facts?.tokenFields) return []
  const isForAll = facts.kind === 'openai' || facts.kind === 'anthropic' || !facts.apis.includes('chat')
  const { ids, logprobs } = facts.tokenFields
  return isForAll || asked === upstreamName ? [ids && logprobs] : []
}

export interface BackendProbe {
  run(signal: AbortSignal): Promise<ProbeResult>
  list(result: ProbeResult, signal: AbortSignal): Promise<readonly ServedModel[]>
}

const maxQuotedChars = 200

type Asking = Pick<FindModelsOptions, 'model' | 'env' | 'secrets'>

export function probesOf(config: ModelConfig, { env, secrets }: Asking): BackendProbe[] {
  const { api, upstreamName = config.name } = config
  return config.backends.map((backend) => ({
    run: async (signal) => ({
      ...(await probeOnce(backend, { api, model: upstreamName, env, secrets, signal })),
      serves: config,
    }),
    list: (_result, signal) => listedModels(backend, { api, env, secrets, signal }),
  }))
}

export function probeAt(url: string, { model, env, secrets }: Asking): BackendProbe {
  const first = apiAccessOfUrl(url)
  const run = async (signal: AbortSignal): Promise<ProbeResult> => {
    const askIn = ({ api, apiKeyEnv }: typeof first): Promise<ProbeResult> =>
      probeOnce({ url, apiKeyEnv, headers: {} }, { api, env, secrets, signal, ...(model !== undefined && { model }) })
    let result = await askIn(first)
    if (result.problem?.data['api'] === 'messages') result = inMessagesOnly(await askIn(apiAccessOf('messages')))
    if (result.problem?.code === 'model_auth') result = { backend: url, problem: keyRefused(url, result.problem, env) }
    return model === undefined ? result : { ...result, serves: { name: model, api: apiOf([result]) ?? 'chat' } }
  }
  const list = ({ facts }: ProbeResult, signal: AbortSignal): Promise<readonly ServedModel[]> => {
    const { api, apiKeyEnv } = facts?.apis.includes('chat') === false ? apiAccessOf(facts.apis[0] ?? 'chat') : first
    return listedModels({ url, apiKeyEnv, headers: {} }, { api, env, secrets, signal })
  }
  return { run, list }
}

/** What else it seemed to answer it would refuse, without the header that it asked for. */
function inMessagesOnly(result: ProbeResult): ProbeResult {
  return result.facts ? { ...result, facts: { ...result.facts, apis: ['messages'] } } : result
}

interface ProbedAs {
  readonly api: ApiName
  readonly model?: string
  readonly env: FindModelsOptions['env']
  readonly secrets: FindModelsOptions['secrets']
  readonly signal: AbortSignal
}

async function probeOnce(backend: BackendConfig, asked: ProbedAs): Promise<ProbeResult> {
  const { url } = backend
  try {
    const facts = await probeBackend(backend, asked)
    await refuseWrongPath(backend, facts, asked)
    return { backend: url, facts }
  } catch (error) {
    asked.signal.throwIfAborted()
    return { backend: url, problem: MillraceError.from(error, 'internal') }
  }
}

/** Somebody answers there and has nothing to offer. What is one step below tells whether the url stops too early. */
async function refuseWrongPath(
  backend: BackendConfig,
  { models, apis }: BackendFacts,
  { env, secrets, signal }: ProbedAs,
): Promise<void> {
  if (models.length > 0 || apis.length > 0) return
  const url = `${backend.url.replace(/\/+$/, '')}/v1`
  const below = await probeBackend({ ...backend, url }, { env, secrets, signal }).catch(() => undefined)
  signal.throwIfAborted()
  const step =
    below && below.models.length > 0
      ? `did you mean ${shownUrl(url, secrets)}?`
      : 'check its path, which must end with the version: http://localhost:8000/v1'
  throw new MillraceError(
    'config_invalid',
    `${shownUrl(backend.url, secrets)} has no list of models and supports no known API; ${step}`,
  )
}

/** In words that fit a backend of which only the url was given: nobody could say there where its key is. */
function keyRefused(url: string, problem: MillraceError, env: Asking['env']): MillraceError {
  const { apiKeyEnv } = apiAccessOfUrl(url)
  const { status = 401, said = '' } = problem.data
  const answer = said === '' ? `answered ${status}` : `answered ${status}: ${String(said).slice(0, maxQuotedChars)}`
  const step = env[apiKeyEnv] ? `it rejects the key in ${apiKeyEnv}` : `it requires a key, but ${apiKeyEnv} is not set`
  const other =
    'Configure a backend with its own key, or with the Messages API only, in --config (models): apiKeyEnv, api: messages.'
  const message = `${shownUrl(url)} ${answer}; ${step}. ${other}`
  return new MillraceError(problem.code, message, { data: problem.data, cause: problem })
}
