import type { LookupFunction } from 'node:net'
import { type EngineName, readReportedError, reportedError, type Source, tokenRequestOf } from '../../apis/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { Connections } from '../../http/index.ts'
import { AbortScope, type Variables } from '../../kit/index.ts'
import { type ApiName, apiPaths, isJsonObject, type JsonObject } from '../../schema/index.ts'
import { isMissing, type ShortAnswer, shortRequest } from '../backend/short-request.ts'
import {
  type BackendConfig,
  backendRedaction,
  backendUrl,
  isAnthropicHost,
  isOpenAiHost,
  lacksKey,
  requestHeaders,
  shownUrl,
} from '../config.ts'

export interface BackendFacts {
  readonly kind: BackendKind
  readonly models: readonly ServedModel[]
  /** The facts about tokens in its replies; undefined if not known: the server names no model, or was too busy to answer. */
  readonly tokenFields: TokenFields | undefined
  readonly apis: readonly ApiName[]
}

export interface ProbeOptions {
  readonly env: Variables
  readonly signal: AbortSignal
  /** Decides how the key is sent. Default: chat; messages for Anthropic. */
  readonly api?: ApiName
  /** The server's name for the model that is asked for a token. Default: the first model that it lists. */
  readonly model?: string
  /** What else must not be shown if the server says it, as for an `HttpBackend`. */
  readonly secrets?: readonly string[] | undefined
  /** Finds the addresses of names, as for its `Connections`. */
  readonly lookup?: LookupFunction | undefined
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
 * Asks a server what it is: its models, its APIs, and what its replies tell about tokens, within ten seconds and with one
 * sampled token (none of OpenAI and Anthropic). Facts that it does not tell are missing. Throws `model_*` if the server
 * cannot be used, `config_invalid` if it has pages for people only or speaks Messages alone (then `data.api` says so).
 */
export async function probeBackend(backend: BackendConfig, options: ProbeOptions): Promise<BackendFacts> {
  const { hostname } = backendUrl(backend.url)
  return await withListing(backend, options, async ({ ask, base, source, listing }) => {
    if (isOpenAiHost(hostname)) return providerFacts('openai', listing)
    if (isAnthropicHost(hostname)) return providerFacts('anthropic', listing)
    return await new Probe(ask, base, source).facts(listing, options.model)
  })
}

/** Asks only for the list of models: one request, and nothing is sampled. Throws as `probeBackend` does. */
export function listedModels(backend: BackendConfig, options: ProbeOptions): Promise<readonly ServedModel[]> {
  return withListing(backend, options, ({ listing }) => modelsIn(listing.document))
}

export type Ask = (path: string, body?: object) => Promise<ShortAnswer>

interface Listed {
  readonly ask: Ask
  readonly base: string
  readonly source: Source
  readonly listing: ShortAnswer
}

async function withListing<Answer>(
  backend: BackendConfig,
  { env, signal, model, secrets, lookup, ...options }: ProbeOptions,
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
  await using connections = new Connections({
    url,
    connections: 4,
    connectTimeoutMs: probeTimeoutMs,
    caFile,
    env,
    lookup,
  })
  const ask: Ask = (path, body) =>
    shortRequest(connections, {
      origin: url.origin,
      path: path + url.search,
      method: body ? 'POST' : 'GET',
      headers,
      body: body && JSON.stringify(body),
      source,
      signal: scope.signal,
      // No limit of its own: the signal ends every request.
      timeoutMs: 0,
    })
  const listing = await ask(`${base}/models`)
  throwIfUnfit(source, listing)
  const answer = await use({ ask, base, source, listing })
  signal.throwIfAborted()
  return answer
}

/** Asks everything after the list of models. Any answer may be missing; the other questions are still asked. */
class Probe {
  readonly #ask: Ask
  readonly #base: string
  /** The root of the server, for paths that are not part of the API. */
  readonly #root: string
  readonly #source: Source

  constructor(ask: Ask, base: string, source: Source) {
    this.#ask = ask
    this.#base = base
    this.#root = base.replace(/\/v1$/, '')
    this.#source = source
  }

  async facts(listing: ShortAnswer, model: string | undefined): Promise<BackendFacts> {
    const listed = modelsIn(listing.document)
    const [kind, apis] = await Promise.all([this.#kind(listing.document, listed), servedApis(this.#base, this.#ask)])
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

  #get(path: string): Promise<ShortAnswer | undefined> {
    return this.#ask(this.#root + path).catch(() => undefined)
  }

  #post(path: string, body: object): Promise<ShortAnswer | undefined> {
    return this.#ask(this.#base + path, body).catch(() => undefined)
  }
}

/** Sends an empty request to each API. A server that has the API refuses the request, which costs nothing. */
export async function servedApis(base: string, ask: Ask): Promise<ApiName[]> {
  const answers = await Promise.all(apiNames.map((api) => ask(base + apiPaths[api], {}).catch(() => undefined)))
  return apiNames.filter((_api, index) => {
    const answer = answers[index]
    return answer !== undefined && !isMissing(answer.status) && !isPage(answer)
  })
}

export function engineOf(kind: BackendKind): EngineName | undefined {
  return kind === 'vllm' || kind === 'sglang' ? kind : undefined
}

function providerFacts(kind: 'openai' | 'anthropic', listing: ShortAnswer): BackendFacts {
  const apis: ApiName[] = kind === 'openai' ? ['chat', 'responses'] : ['messages']
  return { kind, models: modelsIn(listing.document), tokenFields: noTokenFields, apis }
}

/** Only Chat replies tell about tokens, so a server with other APIs but not Chat has none. */
function unasked(apis: readonly ApiName[]): TokenFields | undefined {
  return apis.length > 0 && !apis.includes('chat') ? noTokenFields : undefined
}

/** Throws if the server refuses the key or cannot answer now. A server without a list of models is fit for use. */
function throwIfUnfit(source: Source, answer: ShortAnswer): void {
  if (answer.status < 300) return
  const failure = failureIn(source, answer)
  if (failure.code === 'model_auth' || failure.retryable) throw failure
  if (String(failure.data['said']).includes('anthropic-version')) throw messagesOnly(source)
}

/** A server that wants this header for a list of models wants it for all requests, and would refuse every other API. */
function messagesOnly({ url, backend }: Source): MillraceError {
  const message = `${url} requires the header anthropic-version, so it supports only the Messages API: set api: messages in the model's config`
  return new MillraceError('config_invalid', message, { data: { backend, api: 'messages' } })
}

/** Whether an answer is a page, which is neither a list nor an API: some servers answer every path with one. */
function isPage({ status, document }: ShortAnswer): boolean {
  return status < 300 && typeof document === 'string'
}

function noApi({ url, backend, redaction }: Source, page: string): MillraceError {
  const start = redaction.text(page.trim().replaceAll(/\s+/g, ' '), maxQuotedChars)
  const problem = start === '' ? 'it is empty' : `it is not JSON: ${start}`
  const message = `the list of models at ${url}/models cannot be read: ${problem}; check the url, which must end with the version: http://localhost:8000/v1`
  return new MillraceError('config_invalid', message, { data: { backend } })
}

function failureIn(source: Source, { status, document }: ShortAnswer): MillraceError {
  return reportedError(source, { status, reported: readReportedError(document) })
}

function tooSlow(source: Source): MillraceError {
  const step = 'Is it loading its model? Try again when it answers.'
  const message = `${source.url} did not answer the probe within ${probeTimeoutMs} ms. ${step}`
  return new MillraceError('model_timeout', message, { data: { backend: source.backend } })
}

export type BackendKind = 'vllm' | 'sglang' | 'openai' | 'anthropic' | 'millrace-sim' | 'unknown'

export interface ServedModel {
  readonly id: string
  /** The length of the context in tokens, if the server tells it. */
  readonly contextLength?: number
}

/** Which facts about its tokens a reply has if they are asked for. A training run needs them. */
export interface TokenFields {
  readonly ids: boolean
  readonly logprobs: boolean
  readonly promptIds: boolean
  readonly routedExperts: boolean
  readonly version: boolean
  /** Whether streams have these facts too, and not only whole replies. */
  readonly inStreams: boolean
}

const owners: Readonly<Record<string, BackendKind>> = { vllm: 'vllm', sglang: 'sglang', millrace: 'millrace-sim' }

/** The names of the context's length: vLLM and SGLang, Anthropic, OpenRouter, Groq, Mistral. */
const contextLengthNames = [
  'max_model_len',
  'max_input_tokens',
  'context_length',
  'context_window',
  'max_context_length',
]

export function modelsIn(listing: unknown): ServedModel[] {
  return entriesOf(listing).flatMap((entry) => {
    const { id } = entry
    if (typeof id !== 'string') return []
    const contextLength = contextLengthIn(entry)
    return [contextLength === undefined ? { id } : { id, contextLength }]
  })
}

function kindFromListing(listing: unknown): BackendKind {
  const [first] = entriesOf(listing)
  if (!first) return 'unknown'
  const { owned_by: owner, type, object } = first
  if (typeof owner === 'string') return owners[owner] ?? 'unknown'
  return type === 'model' && object === undefined ? 'anthropic' : 'unknown'
}

function contextLengthIn(document: unknown): number | undefined {
  const fields = fieldsOf(document)
  for (const name of contextLengthNames) {
    const length = fields[name]
    if (typeof length === 'number' && Number.isInteger(length) && length > 0) return length
  }
  return undefined
}

function hasText(answer: ShortAnswer | undefined, name: string): boolean {
  return answer !== undefined && answer.status < 300 && typeof fieldsOf(answer.document)[name] === 'string'
}

/** Undefined for an answer that is no Chat reply. `inStreams`: whether streams may be asked for them. */
function tokenFieldsIn({ document, headers }: ShortAnswer, inStreams: boolean): TokenFields | undefined {
  const reply = fieldsOf(document)
  const choice: unknown = Array.isArray(reply['choices']) ? reply['choices'][0] : undefined
  if (!isJsonObject(choice)) return undefined
  const fields = fieldsOf(choice)
  const holders = [fields, fieldsOf(fields['sgl_ext']), fieldsOf(fields['meta_info'])]
  // SGLang's own form: each token with its log-probability.
  const hasPairs = holders.some((holder) => isFilled(holder['output_token_logprobs']))
  const versions = [reply, fieldsOf(reply['metadata']), fieldsOf(fields['meta_info'])]
  const ids = hasPairs || isFilled(fields['token_ids'])
  return {
    ids,
    logprobs: hasPairs || isFilled(fieldsOf(fields['logprobs'])['content']),
    promptIds:
      [reply, fields].some((holder) => isFilled(holder['prompt_token_ids'])) ||
      holders.some((holder) => isFilled(holder['input_token_ids'])),
    routedExperts: holders.some((holder) => isGiven(holder['routed_experts'])),
    version: isGiven(headers['x-weight-version']) || versions.some((holder) => isGiven(holder['weight_version'])),
    inStreams: ids && inStreams,
  }
}

function entriesOf(listing: unknown): JsonObject[] {
  const { data } = fieldsOf(listing)
  return Array.isArray(data) ? data.filter((entry: unknown) => isJsonObject(entry)) : []
}

function fieldsOf(value: unknown): JsonObject {
  return isJsonObject(value) ? value : {}
}

function isFilled(list: unknown): boolean {
  return Array.isArray(list) && list.length > 0
}

function isGiven(value: unknown): boolean {
  return value !== undefined && value !== null
}
