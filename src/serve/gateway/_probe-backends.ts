import { MillraceError } from '../../errors/index.ts'
import {
  askedByUrl,
  askedInApi,
  listedModels,
  probeBackend,
  shownUrl,
  type BackendConfig,
  type BackendFacts,
  type ModelConfig,
  type ServedModel,
} from '../../inference/index.ts'
import type { ApiName } from '../../schema/index.ts'
import { apiOf } from './_models-of-findings.ts'
import type { Finding, FindModelsOptions } from './gateway-backends.ts'

/** What one backend is asked, as often as somebody wants to know. */
export interface BackendQuestion {
  /** What it is. Rejects only if the signal aborts. */
  ask(signal: AbortSignal): Promise<Finding>
  /** Which models it lists. Rejects if it does not say. */
  list(finding: Finding, signal: AbortSignal): Promise<readonly ServedModel[]>
}

const maxQuotedChars = 200

type Asking = Pick<FindModelsOptions, 'model' | 'env' | 'secrets'>

/** The backends of a model of the configuration. */
export function questionsAbout(config: ModelConfig, { env, secrets }: Asking): BackendQuestion[] {
  const { api, upstreamName = config.name } = config
  return config.backends.map((backend) => ({
    ask: async (signal) => ({
      ...(await probe(backend, { api, model: upstreamName, env, secrets, signal })),
      serves: config,
    }),
    list: (_finding, signal) => listedModels(backend, { api, env, secrets, signal }),
  }))
}

/** A backend of which nothing but its url was said. */
export function questionTo(url: string, { model, env, secrets }: Asking): BackendQuestion {
  const first = askedByUrl(url)
  const ask = async (signal: AbortSignal): Promise<Finding> => {
    const askIn = ({ api, apiKeyEnv }: typeof first): Promise<Finding> =>
      probe({ url, apiKeyEnv, headers: {} }, { api, env, secrets, signal, ...(model !== undefined && { model }) })
    let finding = await askIn(first)
    if (finding.problem?.data['api'] === 'messages') finding = inMessagesOnly(await askIn(askedInApi('messages')))
    if (finding.problem?.code === 'model_auth')
      finding = { backend: url, problem: keyRefused(url, finding.problem, env) }
    return model === undefined ? finding : { ...finding, serves: { name: model, api: apiOf([finding]) ?? 'chat' } }
  }
  const list = ({ facts }: Finding, signal: AbortSignal): Promise<readonly ServedModel[]> => {
    const { api, apiKeyEnv } = facts?.apis.includes('chat') === false ? askedInApi(facts.apis[0] ?? 'chat') : first
    return listedModels({ url, apiKeyEnv, headers: {} }, { api, env, secrets, signal })
  }
  return { ask, list }
}

/** What else it seemed to answer it would refuse, without the header that it asked for. */
function inMessagesOnly(finding: Finding): Finding {
  return finding.facts ? { ...finding, facts: { ...finding.facts, apis: ['messages'] } } : finding
}

interface ProbedAs {
  readonly api: ApiName
  readonly model?: string
  readonly env: FindModelsOptions['env']
  readonly secrets: FindModelsOptions['secrets']
  readonly signal: AbortSignal
}

async function probe(backend: BackendConfig, asked: ProbedAs): Promise<Finding> {
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
      : 'check its path, which goes up to and including the version: http://localhost:8000/v1'
  throw new MillraceError(
    'config_invalid',
    `${shownUrl(backend.url, secrets)} lists no models and answers in no API; ${step}`,
  )
}

/** In words that fit a backend of which only the url was given: nobody could say there where its key is. */
function keyRefused(url: string, problem: MillraceError, env: Asking['env']): MillraceError {
  const { apiKeyEnv } = askedByUrl(url)
  const { status = 401, said = '' } = problem.data
  const answer = said === '' ? `answered ${status}` : `answered ${status}: ${String(said).slice(0, maxQuotedChars)}`
  const step = env[apiKeyEnv] ? `it refuses the key in ${apiKeyEnv}` : `it wants a key, and ${apiKeyEnv} is not set`
  const other =
    'A backend with a key of its own, or that knows Messages only, goes into --config (models): apiKeyEnv, api: messages.'
  const message = `${shownUrl(url)} ${answer}; ${step}. ${other}`
  return new MillraceError(problem.code, message, { data: problem.data, cause: problem })
}
