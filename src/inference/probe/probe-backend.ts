import { MillraceError } from '../../errors/index.ts'
import { AbortScope, type Variables } from '../../kit/index.ts'
import { apiPaths, type ApiName } from '../../schema/index.ts'
import { backendRedaction, shownUrl } from '../backend-secrets.ts'
import { backendUrl, lacksKey, requestHeaders } from '../http/http-backend.ts'
import { isAnthropicHost, isOpenAiHost } from '../providers.ts'
import type { BackendConfig } from '../model-config.ts'
import {
  contextLengthIn,
  hasText,
  kindFromListing,
  modelsIn,
  tokenFieldsIn,
  type BackendKind,
  type ServedModel,
  type TokenFields,
} from './probe-answers.ts'
import { ProbeClient, type ProbeAnswer } from './_probe-client.ts'
import { readReportedError, reportedError } from '../wire/reported-error.ts'
import type { Source } from '../wire/source.ts'
import { tokenRequestOf, type EngineName } from '../tokens/token-request.ts'

/** What a server is and can do. */
export interface BackendFacts {
  readonly kind: BackendKind
  readonly models: readonly ServedModel[]
  /** The facts about tokens in its replies; undefined if not known: the server names no model, or was too busy to answer. */
  readonly tokenFields: TokenFields | undefined
  readonly apis: readonly ApiName[]
}

export interface ProbeOptions {
  /** Where the key and the proxy variables are looked up. */
  readonly env: Variables
  readonly signal: AbortSignal
  /**
   * The API that the server is going to be asked in, which decides how the key is sent. Default: chat; messages for
   * Anthropic.
   */
  readonly api?: ApiName
  /** The server's name for the model that is asked for a token. Default: the first model that it lists. */
  readonly model?: string
  /** What else must not be shown if the server says it, as for an `HttpBackend`. */
  readonly secrets?: readonly string[] | undefined
}

const probeTimeoutMs = 10_000
const maxQuotedChars = 80
const apiNames: readonly ApiName[] = ['chat', 'responses', 'messages']
const noTokenFields: TokenFields = {
  ids: false,
  logprobs: false,
  promptIds: false,
  routedExperts: false,
  version: false,
  inStreams: false,
}

/**
 * Asks a server what it is: its models, the APIs it has, and what its replies tell about tokens. A probe takes ten seconds
 * at most, and one sampled token; OpenAI and Anthropic, which charge for tokens and tell nothing about them, are asked for
 * none. Facts that a server lacks, or does not tell in time, are missing. Throws `model_*` if the server cannot be reached,
 * refuses the key, does not know the model that was named, or fails at listing its models. Throws `config_invalid` if it has
 * pages for people only, or if it would answer in Messages alone (then `data.api` says so).
 */
export async function probeBackend(backend: BackendConfig, options: ProbeOptions): Promise<BackendFacts> {
  const { hostname } = backendUrl(backend.url)
  return await withListing(backend, options, async ({ client, base, source, listing }) => {
    if (isOpenAiHost(hostname)) return providerFacts('openai', listing)
    if (isAnthropicHost(hostname)) return providerFacts('anthropic', listing)
    return await new Probe(client, base, source).facts(listing, options.model)
  })
}

/** Asks only for the list of models: one request, and nothing is sampled. Throws as `probeBackend` does. */
export function listedModels(backend: BackendConfig, options: ProbeOptions): Promise<readonly ServedModel[]> {
  return withListing(backend, options, ({ listing }) => modelsIn(listing.document))
}

interface Listed {
  readonly client: ProbeClient
  readonly base: string
  readonly source: Source
  readonly listing: ProbeAnswer
}

async function withListing<Answer>(
  backend: BackendConfig,
  { env, signal, model, secrets, ...options }: ProbeOptions,
  use: (listed: Listed) => Answer | Promise<Answer>,
): Promise<Answer> {
  const url = backendUrl(backend.url)
  const base = url.pathname.replace(/\/+$/, '')
  const { apiKeyEnv, caFile } = backend
  const source: Source = {
    backend: url.host,
    url: shownUrl(`${url.origin}${base}`, secrets),
    model: model ?? '',
    apiKeyEnv,
    lacksKey: lacksKey(backend, env),
    redaction: backendRedaction(backend, env, { secrets, names: model === undefined ? [] : [model] }),
  }
  using scope = new AbortScope(signal, probeTimeoutMs, () => tooSlow(source))
  const api = options.api ?? (isAnthropicHost(url.hostname) ? 'messages' : 'chat')
  const headers = requestHeaders(backend, env, { api, accept: 'application/json' })
  await using client = new ProbeClient({ url, source, headers, caFile, env, signal: scope.signal })
  const listing = await client.get(`${base}/models`)
  throwIfUnfit(source, listing)
  const answer = await use({ client, base, source, listing })
  signal.throwIfAborted()
  return answer
}

/** Asks everything after the list of models. Any answer may be missing; the other questions are still asked. */
class Probe {
  readonly #client: ProbeClient
  readonly #base: string
  /** The root of the server, for paths that are not part of the API. */
  readonly #root: string
  readonly #source: Source

  constructor(client: ProbeClient, base: string, source: Source) {
    this.#client = client
    this.#base = base
    this.#root = base.replace(/\/v1$/, '')
    this.#source = source
  }

  async facts(listing: ProbeAnswer, model: string | undefined): Promise<BackendFacts> {
    const listed = modelsIn(listing.document)
    const [kind, apis] = await Promise.all([this.#kind(listing.document, listed), this.#apis()])
    if (apis.length === 0 && isPage(listing)) throw noApi(this.#source, String(listing.document))
    const models = kind === 'sglang' ? await this.#withContextLength(listed) : listed
    const asked = model ?? listed[0]?.id
    const canAsk = apis.includes('chat') && asked !== undefined
    const tokenFields = canAsk ? await this.#tokenFields(asked, kind, model !== undefined) : unasked(apis)
    return { kind, models, tokenFields, apis }
  }

  async #kind(listing: unknown, models: readonly ServedModel[]): Promise<BackendKind> {
    const kind = kindFromListing(listing)
    if (kind !== 'unknown') return kind
    // A router before the server may write its own list, so the server itself is asked.
    const paths = ['/model_info', '/get_model_info', '/version']
    const [info, older, version] = await Promise.all(paths.map((path) => this.#get(path)))
    if (hasText(info, 'model_path') || hasText(older, 'model_path')) return 'sglang'
    // Other servers have a version too, but their lists do not tell the length of the context.
    const tellsLength = models.some(({ contextLength }) => contextLength !== undefined)
    return tellsLength && hasText(version, 'version') ? 'vllm' : 'unknown'
  }

  /** Sends an empty request to each API. A server that has the API refuses the request, which costs nothing. */
  async #apis(): Promise<ApiName[]> {
    const answers = await Promise.all(apiNames.map((api) => this.#post(apiPaths[api], {})))
    return apiNames.filter((_api, index) => {
      const answer = answers[index]
      return answer !== undefined && ![404, 405, 501].includes(answer.status) && !isPage(answer)
    })
  }

  /** Adds the length of the context, which older versions of SGLang do not list. */
  async #withContextLength(models: readonly ServedModel[]): Promise<readonly ServedModel[]> {
    if (models.every(({ contextLength }) => contextLength !== undefined)) return models
    const answers = await Promise.all(['/server_info', '/get_server_info'].map((path) => this.#get(path)))
    const contextLength = answers
      .map((answer) => contextLengthIn(answer?.document))
      .find((length) => length !== undefined)
    return contextLength === undefined ? models : models.map((model) => ({ contextLength, ...model }))
  }

  /** `isWanted`: the caller named this very model, so that it must exist. */
  async #tokenFields(model: string, kind: BackendKind, isWanted: boolean): Promise<TokenFields | undefined> {
    const { fields, inStreams } = tokenRequestOf([engineOf(kind)])
    const answer = await this.#post(apiPaths.chat, {
      model,
      messages: [{ role: 'user', content: 'Hi' }],
      max_tokens: 1,
      ...fields,
    })
    if (!answer) return undefined
    if (answer.status < 300) return tokenFieldsIn(answer, inStreams)
    const failure = failureIn(this.#source, answer)
    if (failure.code === 'model_auth' || (failure.code === 'model_not_found' && isWanted)) throw failure
    // A server that refuses a request for tokens has none to give.
    return failure.retryable ? undefined : noTokenFields
  }

  #get(path: string): Promise<ProbeAnswer | undefined> {
    return this.#client.get(this.#root + path).catch(() => undefined)
  }

  #post(path: string, body: object): Promise<ProbeAnswer | undefined> {
    return this.#client.post(this.#base + path, body).catch(() => undefined)
  }
}

/** The engine that a kind of backend runs, for how tokens are asked for. */
export function engineOf(kind: BackendKind): EngineName | undefined {
  return kind === 'vllm' || kind === 'sglang' ? kind : undefined
}

function providerFacts(kind: 'openai' | 'anthropic', listing: ProbeAnswer): BackendFacts {
  const apis: ApiName[] = kind === 'openai' ? ['chat', 'responses'] : ['messages']
  return { kind, models: modelsIn(listing.document), tokenFields: noTokenFields, apis }
}

/**
 * The facts if no reply was sampled. Only Chat replies tell about tokens, so a server with other APIs but not Chat has none.
 */
function unasked(apis: readonly ApiName[]): TokenFields | undefined {
  return apis.length > 0 && !apis.includes('chat') ? noTokenFields : undefined
}

/** Throws if the server refuses the key or cannot answer now. A server without a list of models is fit for use. */
function throwIfUnfit(source: Source, answer: ProbeAnswer): void {
  if (answer.status < 300) return
  const failure = failureIn(source, answer)
  if (failure.code === 'model_auth' || failure.retryable) throw failure
  if (String(failure.data['said']).includes('anthropic-version')) throw messagesOnly(source)
}

/** A server that wants this header for a list of models wants it for all requests, and would refuse every other API. */
function messagesOnly({ url, backend }: Source): MillraceError {
  const message = `${url} asks for the header anthropic-version: it knows Messages only, so say api: messages in the model's config`
  return new MillraceError('config_invalid', message, { data: { backend, api: 'messages' } })
}

/** Whether an answer is a page, which is neither a list nor an API: some servers answer every path with one. */
function isPage({ status, document }: ProbeAnswer): boolean {
  return status < 300 && typeof document === 'string'
}

function noApi({ url, backend, redaction }: Source, page: string): MillraceError {
  const start = redaction.text(page.trim().replaceAll(/\s+/g, ' '), maxQuotedChars)
  const said = start === '' ? 'it is empty' : `it is no JSON: ${start}`
  const message = `the list of models at ${url}/models cannot be read: ${said}; check the url, which goes up to and including the version: http://localhost:8000/v1`
  return new MillraceError('config_invalid', message, { data: { backend } })
}

function failureIn(source: Source, { status, document }: ProbeAnswer): MillraceError {
  return reportedError(source, { status, reported: readReportedError(document) })
}

function tooSlow(source: Source): MillraceError {
  const step = 'Is it loading its model? Try again when it answers.'
  const message = `${source.url} did not say what it is within ${probeTimeoutMs} ms. ${step}`
  return new MillraceError('model_timeout', message, { data: { backend: source.backend } })
}
