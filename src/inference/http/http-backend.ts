import type { Dispatcher } from 'undici'
import { MillraceError } from '../../errors/index.ts'
import { closeAll, jsonOrText, Resource, type Variables } from '../../kit/index.ts'
import { apiPaths, countPaths, type ApiName, type LogprobsKind } from '../../schema/index.ts'
import type { Backend, BackendReply, BackendRequest } from '../backend.ts'
import { backendRedaction, shownUrl } from '../backend-secrets.ts'
import { countFailure } from '../_cannot-count.ts'
import { ChatDialect } from '../wire/chat-dialect.ts'
import { CountReader } from '../wire/count-reader.ts'
import type { Dialect } from '../wire/dialect.ts'
import { decodePool } from '../tokens/decode-pool.ts'
import { descriptorBudget } from './descriptor-budget.ts'
import { Connections } from './connections.ts'
import { BackendExchange, type Wire } from './_backend-exchange.ts'
import { GenerateReader } from '../wire/generate-reply.ts'
import { MessagesDialect } from '../wire/messages-dialect.ts'
import type { BackendConfig, ModelConfig } from '../model-config.ts'
import { isObject } from '../wire/foreign-json.ts'
import { PromptMemory } from '../tokens/prompt-memory.ts'
import type { EngineName } from '../tokens/token-request.ts'
import { isMistralHost, isOpenAiHost, isAnthropicHost, providerAt, providerOfApi } from '../providers.ts'
import { readReportedError, reportedError } from '../wire/reported-error.ts'
import { ResponsesDialect } from '../wire/responses-dialect.ts'
import { readShortAnswer } from './short-answer.ts'
import { transportError } from './transport-error.ts'
import { WeightWatch, type VersionAnswer } from './weight-watch.ts'

export interface HttpBackendOptions {
  /** The most sockets. Default: the model's maxConcurrency, within this backend's share of the descriptor budget. */
  readonly connections?: number
  /** How many workers divide the descriptors of this process. */
  readonly workers?: number
  /** Whether the version of the weights is asked for, where replies do not say it. */
  readonly watchesWeights?: boolean
  /** How many backends, of all models, divide the descriptors of a worker. Default: those of this model. */
  readonly backends?: number
  /** What else must not be shown if the server says it, beside the key, the headers and the query of its url. */
  readonly secrets?: readonly string[] | undefined
}

/** The key that servers without authentication are sent; vLLM's documentation made it the custom. */
const noKey = 'EMPTY'

/** Such an answer is short, and the caller waits for it. */
const shortAnswerTimeoutMs = 10_000

/** The version of Anthropic's API that the messages dialect is written for. */
const anthropicVersion = '2023-06-01'

const dialects = { chat: ChatDialect, responses: ResponsesDialect, messages: MessagesDialect }

/** One endpoint of a server: the path of its requests, and how its answers are read. */
interface Endpoint {
  readonly path: string
  readonly wire: Wire
  /** Writes the body of a request that does not bring its own. */
  readonly render: (request: BackendRequest) => string
}

/** One server with an OpenAI-compatible or an Anthropic API, over connections that live as long as the backend. */
export class HttpBackend extends Resource implements Backend {
  readonly name: string
  readonly provider: string
  readonly countTokens: Backend['countTokens']
  /** What the server calls the model. */
  readonly upstreamName: string
  readonly logprobs: LogprobsKind | undefined
  /** The API that it is asked in. */
  readonly api: ApiName
  /** The most sockets that are open at once. */
  readonly maxConnections: number
  readonly #connections: Connections
  readonly #origin: string
  readonly #base: string
  readonly #query: string
  readonly #main: Endpoint
  /** SGLang's own API, beside the others. */
  readonly #generate: Endpoint
  readonly #headers: readonly string[]
  /** Names of the headers in the backend's config, which no request may change. */
  readonly #fixedHeaders: ReadonlySet<string>
  readonly #decoding: AsyncDisposable
  readonly #heard = { at: -Infinity }
  /** Only of vLLM in Chat: other servers say the version in their replies, or nowhere. */
  readonly #weights: WeightWatch | undefined

  /** `env` is where the key and the proxy variables are looked up. */
  constructor(model: ModelConfig, backend: BackendConfig, env: Variables, options: HttpBackendOptions = {}) {
    super()
    const url = backendUrl(backend.url)
    const isOpenAi = isOpenAiHost(url.hostname)
    this.#origin = url.origin
    this.#base = url.pathname.replace(/\/+$/, '')
    this.#query = url.search
    // A part of the path may have been filled in from a variable.
    const shown = (path: string): string => shownUrl(url.origin + path, options.secrets)
    const shownBase = shown(this.#base).slice(url.origin.length)
    this.name = shownBase === '/v1' ? url.host : url.host + shownBase
    this.provider = backend.engine ?? providerAt(url.hostname) ?? providerOfApi(model.api)
    this.logprobs = backend.logprobs ?? (backend.engine && usualLogprobs[backend.engine])
    const upstreamName = model.upstreamName ?? model.name
    this.upstreamName = upstreamName
    this.api = model.api
    const source = {
      backend: this.name,
      url: shown(this.#base + apiPaths[model.api]),
      model: upstreamName,
      apiKeyEnv: backend.apiKeyEnv,
      lacksKey: lacksKey(backend, env),
      redaction: backendRedaction(backend, env, { secrets: options.secrets, names: [model.name, upstreamName] }),
    }
    const { name: modelName, stream, sendReasoning } = model
    const isMistral = isMistralHost(url.hostname)
    const names = { source, modelName, upstreamName }
    const written = { ...names, stream, sendReasoning, isOpenAi, isMistral, engine: backend.engine }
    const dialect: Dialect = new dialects[model.api](written)
    this.#headers = writeHeaders(model, backend, env)
    this.#fixedHeaders = headerNames(backend)
    const { requestTimeoutMs, idleTimeoutMs, connectTimeoutMs } = model
    const connections = options.connections ?? connectionShare(model, options)
    this.maxConnections = connections
    const shared = { requestTimeoutMs, idleTimeoutMs, prompts: new PromptMemory(), heard: this.#heard }
    const render: Endpoint['render'] = (request) => dialect.render(request)
    const path = this.#base + dialect.path
    this.#main = { path: path + this.#query, wire: { source, dialect, ...shared }, render }
    const root = this.#base.replace(/\/v1$/, '')
    const native = `${root}/generate`
    const nativeSource = { ...source, url: shown(native) }
    const reader = new GenerateReader(nativeSource)
    this.#generate = { path: native + this.#query, wire: { source: nativeSource, dialect: reader, ...shared }, render }
    // vLLM and SGLang count Chat requests at a path below their root. How other servers of Chat count is not known.
    const counter = model.api !== 'chat' ? this.#base + countPaths[model.api] : backend.engine && `${root}/tokenize`
    if (counter !== undefined) {
      const countSource = { ...source, url: shown(counter) }
      // Counting has a `heard` of its own: a server that counts is no sign that it can sample.
      const wire = { ...shared, source: countSource, dialect: new CountReader(countSource), heard: { at: 0 } }
      const endpoint = {
        path: counter + this.#query,
        wire,
        render: (asked: BackendRequest) => dialect.renderCounted(asked),
      }
      this.countTokens = (request) => this.#count(endpoint, request)
    }
    this.#connections = new Connections({ url, connections, connectTimeoutMs, caFile: backend.caFile, env })
    this.#decoding = decodePool.hold()
    const isWatched = options.watchesWeights && backend.engine === 'vllm' && model.api === 'chat'
    this.#weights = isWatched ? new WeightWatch(() => this.#weightInfo(`${root}/weight_info`)) : undefined
  }

  get heardAt(): number {
    return this.#heard.at
  }

  /** Whether requests are under way, or something of a reply came within so many milliseconds. */
  isActive(withinMs: number): boolean {
    return this.#connections.busy > 0 || performance.now() - this.#heard.at < withinMs
  }

  send(request: BackendRequest): Promise<BackendReply> {
    const endpoint = request.bodyApi === 'generate' ? this.#generate : this.#main
    if (request.captureTokens && endpoint.wire.dialect.hasTokens) decodePool.warm()
    const weights = request.captureTokens ? this.#weights : undefined
    if (!weights) return this.#exchange(endpoint, request)
    const before = weights.seen
    return this.#exchange(endpoint, request).then((reply) =>
      reply.tokens && reply.tokens.version === undefined
        ? { ...reply, laterVersion: { find: () => weights.versionOf(before), look: () => weights.look() } }
        : reply,
    )
  }

  /** vLLM says the version only if it was started with its development mode. */
  async #weightInfo(path: string): Promise<VersionAnswer> {
    try {
      const { status, text } = await this.#ask('GET', path, this.closedSignal)
      if (isMissing(status)) return 'none'
      if (status >= 300) return 'unknown'
      const body = jsonOrText(text)
      const { weight_version: version } = isObject(body) ? (body as { weight_version?: unknown }) : {}
      return typeof version === 'string' ? { version } : 'none'
    } catch {
      return 'unknown'
    }
  }

  async #count(endpoint: Endpoint, request: BackendRequest): Promise<number> {
    try {
      const { usage } = await this.#exchange(endpoint, request)
      return usage.input
    } catch (error) {
      throw countFailure(error, endpoint.wire.source)
    }
  }

  #exchange({ path, wire, render }: Endpoint, request: BackendRequest): Promise<BackendReply> {
    const { signal, sessionId, retry, traceparent, captureTokens: wantsTokens, sink, choices } = request
    const { conversation: messages = request.messages } = request
    if (signal.aborted) return Promise.reject(signal.reason)
    return new Promise((resolve, reject) => {
      const body = request.body ?? render(request)
      const keepsRaw = request.body !== undefined || request.own !== undefined
      const headers = this.#headersFor(request)
      if (!this.#fixedHeaders.has('x-session-id')) headers.push('x-session-id', sessionId)
      if (retry > 0) headers.push('x-stainless-retry-count', String(retry))
      if (traceparent !== undefined) headers.push('traceparent', traceparent)
      const shard = this.#connections.pick()
      const call = { signal, sessionId, messages, choices, wantsTokens, sink, keepsRaw, shard, resolve, reject }
      const exchange = new BackendExchange(wire, call)
      shard.dispatcher.dispatch({ origin: this.#origin, path, method: 'POST', headers, body }, exchange)
    })
  }

  endSession(sessionId: string): void {
    this.#main.wire.prompts.forget(sessionId)
  }

  #headersFor({ bodyHeaders }: BackendRequest): string[] {
    if (!bodyHeaders) return this.#headers.slice()
    const own = Object.entries(bodyHeaders).filter(([name]) => !this.#fixedHeaders.has(name))
    const names = new Set(own.map(([name]) => name))
    const headers = own.flat()
    for (let index = 0; index < this.#headers.length; index += 2) {
      const [name = '', value = ''] = this.#headers.slice(index, index + 2)
      if (!names.has(name)) headers.push(name, value)
    }
    return headers
  }

  /** The names of the models the server offers. Throws if it refuses the key, or fails in a way that may pass. */
  async listModels(signal: AbortSignal): Promise<string[]> {
    const { status, text } = await this.#ask('GET', `${this.#base}/models`, signal)
    if (status >= 300) {
      const reported = readReportedError(jsonOrText(text))
      const failure = reportedError(this.#main.wire.source, { status, reported })
      if (failure.code === 'model_auth' || failure.retryable) throw failure
      return []
    }
    const body = jsonOrText(text)
    const { data } = isObject(body) ? (body as { data?: unknown }) : {}
    if (!Array.isArray(data)) return []
    return data.flatMap((entry: unknown) => (isObject(entry) && 'id' in entry ? [String(entry.id)] : []))
  }

  /** Whether the server has an API. An empty request tells: it is refused where there is one, which costs nothing. */
  async hasApi(api: ApiName, signal: AbortSignal): Promise<boolean> {
    const { status } = await this.#ask('POST', this.#base + apiPaths[api], signal)
    return !isMissing(status)
  }

  protected override onClose(): Promise<void> {
    this.#weights?.close()
    return closeAll([this.#decoding, this.#connections])
  }

  async #ask(
    method: 'GET' | 'POST',
    path: string,
    signal: AbortSignal,
  ): Promise<{ readonly status: number; readonly text: string }> {
    try {
      const options: Dispatcher.RequestOptions = {
        origin: this.#origin,
        path: path + this.#query,
        method,
        headers: [...this.#headers],
        ...(method === 'POST' && { body: '{}' }),
        headersTimeout: shortAnswerTimeoutMs,
        bodyTimeout: shortAnswerTimeoutMs,
        signal,
      }
      const { statusCode, body } = await this.#connections.pick().dispatcher.request(options)
      return { status: statusCode, text: await readShortAnswer(body, this.#main.wire.source) }
    } catch (error) {
      signal.throwIfAborted()
      throw transportError(this.#main.wire.source, error)
    }
  }
}

/** What the log-probabilities of an engine are unless it was started with another mode. */
const usualLogprobs: Readonly<Record<EngineName, LogprobsKind>> = { vllm: 'raw', sglang: 'processed' }

function connectionShare(
  model: ModelConfig,
  { workers, backends = model.backends.length }: HttpBackendOptions,
): number {
  const share = Math.floor(descriptorBudget({ workers }) / Math.max(1, backends))
  return Math.max(1, Math.min(model.maxConcurrency, share))
}

/** The headers of all requests, written once; only session, retry count and trace are added per request. */
function writeHeaders(model: ModelConfig, backend: BackendConfig, env: Variables): string[] {
  const accept = model.stream ? 'text/event-stream, application/json' : 'application/json'
  return requestHeaders(backend, env, { api: model.api, accept })
}

/** The usual headers (content type, client, key), with those of the backend's config in place of usual ones of the same name. */
export function requestHeaders(
  backend: BackendConfig,
  env: Variables,
  { api, accept }: { readonly api: ApiName; readonly accept: string },
): string[] {
  const names = headerNames(backend)
  const key = env[backend.apiKeyEnv] || noKey
  const usual: [name: string, value: string][] = [
    ['content-type', 'application/json'],
    ['accept', accept],
    ['user-agent', 'millrace'],
  ]
  if (api === 'messages') usual.push(['anthropic-version', anthropicVersion])
  if (api === 'messages' && !names.has('authorization')) usual.push(['x-api-key', key])
  // Anthropic takes a key only in `x-api-key`. Other servers of its API that also serve OpenAI's look for it in `authorization`.
  const isBearer = api !== 'messages' || !(names.has('x-api-key') || isAnthropicHost(backendUrl(backend.url).hostname))
  if (isBearer) usual.push(['authorization', `Bearer ${key}`])
  return [...usual.filter(([name]) => !names.has(name)), ...Object.entries(backend.headers)].flat()
}

/** Whether there is no key for a backend: self-hosted servers often want none. */
export function lacksKey(backend: BackendConfig, env: Variables): boolean {
  const names = headerNames(backend)
  return !env[backend.apiKeyEnv] && !['authorization', 'api-key', 'x-api-key'].some((name) => names.has(name))
}

function headerNames({ headers }: BackendConfig): ReadonlySet<string> {
  return new Set(Object.keys(headers).map((name) => name.toLowerCase()))
}

/** Parses and checks the url of a backend. */
export function backendUrl(text: string): URL {
  const url = URL.parse(text)
  if (!url || (url.protocol !== 'http:' && url.protocol !== 'https:')) {
    throw new MillraceError(
      'config_invalid',
      `"${shownUrl(text)}" is no url of a backend. Write it like http://localhost:8000/v1.`,
    )
  }
  if (url.username !== '' || url.password !== '') {
    const step = 'Put the key into an environment variable and name that with apiKeyEnv.'
    throw new MillraceError('config_invalid', `the url of backend ${url.host} contains credentials. ${step}`)
  }
  return url
}

/** Whether a status says that a server does not have a route. */
function isMissing(status: number): boolean {
  return [404, 405, 501].includes(status)
}
