import type { LookupFunction } from 'node:net'
import { Resource, type Variables, withAbort } from '../../kit/index.ts'
import { type ApiName, apiPaths, countPaths, isJsonObject, type LogprobsKind } from '../../schema/index.ts'
import {
  type Backend,
  type BackendReply,
  type BackendRequest,
  ChatDialect,
  type Dialect,
  type EngineName,
  GenerateReader,
  type LaterVersion,
  malformedReply,
  MessagesDialect,
  readReportedError,
  reportedError,
  ResponsesDialect,
  type Source,
  type TokenEndpoint,
  TokenPrompt,
} from '../../apis/index.ts'
import {
  type BackendConfig,
  backendRedaction,
  backendUrl,
  headerNames,
  isMistralHost,
  lacksKey,
  requestHeaders,
  isOpenAiHost,
  type ModelConfig,
  providerAt,
  providerOfApi,
  shownUrl,
} from '../config.ts'
import { countFailure } from '../model/count-tokens.ts'
import type { SetVersion } from '../model/pause-gate.ts'
import { decodePool } from './decode-pool.ts'
import { Connections, descriptorBudget, retryAfterMs } from '../../http/index.ts'
import { EngineControl } from './engine-control.ts'
import { BackendExchange, type EndpointContext } from './exchange.ts'
import { isMissing, type ShortAnswer, shortRequest } from './short-request.ts'
import { PromptMemory } from './prompt-memory.ts'
import { TokenServer } from './token-server.ts'
import { WeightWatch, type VersionAnswer, type WeightVersion } from './weight-watch.ts'

export interface HttpBackendOptions {
  /** The most sockets. Default: the model's maxConcurrency, within this backend's share of the descriptor budget. */
  readonly connections?: number
  readonly workers?: number
  /** Connections of clients that a server of this process has room for. */
  readonly clients?: number | undefined
  /**
   * Whether the version of the weights is asked for, where replies do not say it. `first`: also before the first request, which
   * waits for the answer, and of servers whose engine is not named.
   */
  readonly watchesWeights?: boolean | 'first'
  /** How many backends, of all models, divide the descriptors of a worker. Default: those of this model. */
  readonly backends?: number
  /** What else must not be shown if the server says it, beside the key, the headers and the query of its url. */
  readonly secrets?: readonly string[] | undefined
  /** Finds the addresses of names, as for its `Connections`. */
  readonly lookup?: LookupFunction | undefined
}

/** The headers that routers in front of engines keep a session together by: vLLM's and SGLang's. */
const routingHeaders = ['x-session-id', 'x-smg-routing-key'] as const

const noPrompt = TokenPrompt.of()
const shortAnswerTimeoutMs = 10_000
const maxControlConnections = 2

const dialects = { chat: ChatDialect, responses: ResponsesDialect, messages: MessagesDialect }

interface ShortRequestOptions {
  readonly body?: string | Buffer | undefined
  readonly headers?: readonly string[]
  readonly source?: Source
  readonly timeoutMs?: number
  readonly connections?: Connections
}

interface Endpoint {
  readonly path: string
  readonly wire: EndpointContext
  readonly render: (request: BackendRequest) => string | Buffer
}

/** One server with an OpenAI-compatible or an Anthropic API, over connections that live as long as the backend. */
export class HttpBackend extends Resource implements Backend {
  readonly name: string
  readonly provider: string
  readonly countTokens: Backend['countTokens']
  readonly upstreamName: string
  readonly logprobs: LogprobsKind | undefined
  readonly api: ApiName
  readonly maxConnections: number
  /** The path that those of all APIs begin with. */
  readonly base: string
  readonly #connections: Connections
  readonly #origin: string
  readonly #query: string
  readonly #main: Endpoint
  readonly #generate: Endpoint
  readonly #headers: readonly string[]
  readonly #fixedHeaders: ReadonlySet<string>
  readonly #decoding: AsyncDisposable
  readonly #lastByte = { at: -Infinity }
  /** Only of vLLM in Chat: other servers say the version in their replies, or nowhere. */
  readonly #weights: WeightWatch | undefined
  readonly tokenAccess: TokenServer
  readonly engineControl: EngineControl
  /** For short requests of our own, which must not wait for generations to end. */
  readonly #controlConnections: () => Connections
  #openControls: Connections | undefined
  /** The endpoints for prompts of ids, once one was needed. */
  readonly #idEndpoints = new Map<TokenEndpoint, Endpoint>()
  readonly #endpointFor: (endpoint: TokenEndpoint) => Endpoint
  readonly #asksFirst: boolean

  constructor(model: ModelConfig, backend: BackendConfig, env: Variables, options: HttpBackendOptions = {}) {
    super()
    const url = backendUrl(backend.url)
    const isOpenAi = isOpenAiHost(url.hostname)
    this.#origin = url.origin
    this.base = url.pathname.replace(/\/+$/, '')
    this.#query = url.search
    // A part of the path may have been filled in from a variable.
    const shown = (path: string): string => shownUrl(url.origin + path, options.secrets)
    const shownBase = shown(this.base).slice(url.origin.length)
    this.name = shownBase === '/v1' ? url.host : url.host + shownBase
    this.provider = backend.engine ?? providerAt(url.hostname) ?? providerOfApi(model.api)
    this.logprobs = backend.logprobs ?? (backend.engine && usualLogprobs[backend.engine])
    const upstreamName = model.upstreamName ?? model.name
    this.upstreamName = upstreamName
    this.api = model.api
    const source = {
      backend: this.name,
      url: shown(this.base + apiPaths[model.api]),
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
    const accept = model.stream ? 'text/event-stream, application/json' : 'application/json'
    this.#headers = requestHeaders(backend, env, { api: model.api, accept })
    this.#fixedHeaders = headerNames(backend)
    const { requestTimeoutMs, idleTimeoutMs, connectTimeoutMs } = model
    const connections = options.connections ?? connectionShare(model, options)
    this.maxConnections = connections
    const shared = { requestTimeoutMs, idleTimeoutMs, prompts: new PromptMemory(), lastByte: this.#lastByte }
    const render: Endpoint['render'] = (request) => dialect.render(request)
    const path = this.base + dialect.path
    this.#main = { path: path + this.#query, wire: { source, dialect, ...shared }, render }
    const root = this.base.replace(/\/v1$/, '')
    const native = `${root}/generate`
    const nativeSource = { ...source, url: shown(native) }
    const reader = new GenerateReader(nativeSource)
    this.#generate = { path: native + this.#query, wire: { source: nativeSource, dialect: reader, ...shared }, render }
    // vLLM and SGLang count Chat requests at a path below their root. How other servers of Chat count is not known.
    const counter = model.api !== 'chat' ? this.base + countPaths[model.api] : backend.engine && `${root}/tokenize`
    if (counter !== undefined) {
      const countSource = { ...source, url: shown(counter) }
      this.countTokens = (request) => {
        const body = request.body ?? dialect.renderCounted(request)
        return this.#count(request, { path: counter, body, source: countSource, timeoutMs: requestTimeoutMs })
      }
    }
    this.tokenAccess = new TokenServer({
      ask: (asked, signal, body) => this.ask(asked, signal, { body }),
      base: this.base,
      root,
      source,
      signal: this.closedSignal,
    })
    this.#endpointFor = (endpoint) => {
      const idsPath = this.tokenAccess.pathOf(endpoint)
      const idsSource = { ...source, url: shown(idsPath) }
      return {
        path: idsPath + this.#query,
        wire: { source: idsSource, dialect: endpoint.reader(idsSource), ...shared },
        render: ({ prompt = noPrompt, ...request }) => endpoint.render(request, { prompt, model: upstreamName }),
      }
    }
    const reached = { url, connectTimeoutMs, caFile: backend.caFile, env, lookup: options.lookup }
    this.#connections = new Connections({ ...reached, connections })
    this.#controlConnections = () =>
      (this.#openControls ??= new Connections({ ...reached, connections: maxControlConnections }))
    this.engineControl = new EngineControl({
      ask: (asked, signal, more) => this.ask(asked, signal, { ...more, connections: this.#controlConnections() }),
      root,
      source: { ...source, url: shown(root) },
      signal: this.closedSignal,
      engine: backend.engine,
    })
    this.#decoding = decodePool.hold()
    const { watchesWeights } = options
    this.#asksFirst = watchesWeights === 'first'
    const mayBeVllm = this.#asksFirst && backend.engine === undefined && providerAt(url.hostname) === undefined
    const isWatched = watchesWeights && (mayBeVllm || backend.engine === 'vllm') && model.api === 'chat'
    this.#weights = isWatched ? new WeightWatch(() => this.#weightInfo(`${root}/weight_info`)) : undefined
  }

  get lastByteAt(): number {
    return this.#lastByte.at
  }

  /** The version that the server named last, where it is asked for that. */
  get weightVersion(): string | undefined {
    return this.#weights?.last
  }

  /** Whether requests are under way, or something of a reply came within so many milliseconds. */
  isActive(withinMs: number): boolean {
    return this.#connections.busy > 0 || performance.now() - this.#lastByte.at < withinMs
  }

  async send(request: BackendRequest): Promise<BackendReply> {
    const endpoint = request.prompt ? await this.#idsEndpoint() : this.#textEndpoint(request)
    if (request.captureTokens && endpoint.wire.dialect.hasTokens) decodePool.warm()
    const weights = request.captureTokens ? this.#weights : undefined
    if (weights && this.#asksFirst && !weights.wasAsked) await withAbort(weights.first(), request.signal)
    const before = weights?.seen
    const reply = await this.#exchange(endpoint, request)
    if (!weights?.isWatching || !reply.tokens || reply.tokens.version !== undefined) return reply
    return { ...reply, laterVersion: laterVersion(weights, before) }
  }

  #textEndpoint({ bodyApi }: BackendRequest): Endpoint {
    return bodyApi === 'generate' ? this.#generate : this.#main
  }

  async #idsEndpoint(): Promise<Endpoint> {
    const endpoint = await this.tokenAccess.endpoint()
    const known = this.#idEndpoints.get(endpoint) ?? this.#endpointFor(endpoint)
    this.#idEndpoints.set(endpoint, known)
    return known
  }

  /** vLLM says the version only if it was started with its development mode. */
  async #weightInfo(path: string): Promise<VersionAnswer> {
    try {
      const { status, document } = await this.ask(path, this.closedSignal)
      if (isMissing(status)) return 'none'
      if (status >= 300) return 'unknown'
      const version = isJsonObject(document) ? document['weight_version'] : undefined
      return typeof version === 'string' ? { version } : 'none'
    } catch {
      return 'unknown'
    }
  }

  async #count(
    request: BackendRequest,
    asked: {
      readonly path: string
      readonly body: string | Buffer
      readonly source: Source
      readonly timeoutMs: number
    },
  ): Promise<number> {
    const { source } = asked
    try {
      const headers = this.#headersFor(request)
      const answer = await this.ask(asked.path, request.signal, { ...asked, headers })
      const { document: body } = answer
      if (answer.status >= 300) {
        const reported = readReportedError(body)
        throw reportedError(source, { status: answer.status, reported, retryAfterMs: retryAfterMs(answer.headers) })
      }
      // The first name is that of Anthropic and OpenAI, the other that of vLLM and SGLang.
      const count = isJsonObject(body) ? (body['input_tokens'] ?? body['count']) : undefined
      if (typeof count === 'number' && Number.isSafeInteger(count) && count >= 0) return count
      throw malformedReply(source, 'it has no number of tokens')
    } catch (error) {
      throw countFailure(error, source)
    }
  }

  #exchange({ path, wire, render }: Endpoint, request: BackendRequest): Promise<BackendReply> {
    const { signal, sessionId, captureTokens: wantsTokens, sink, choices, keepsAborted } = request
    const { conversation: messages = request.messages } = request
    if (signal.aborted) return Promise.reject(signal.reason)
    return new Promise((resolve, reject) => {
      const body = request.body ?? render(request)
      const keepsRaw = request.body !== undefined || request.own !== undefined
      const headers = this.#headersFor(request)
      const shard = this.#connections.only ?? this.#connections.pick()
      const call = {
        signal,
        sessionId,
        messages,
        choices,
        wantsTokens,
        sink,
        keepsRaw,
        keepsAborted,
        shard,
        resolve,
        reject,
      }
      const exchange = new BackendExchange(wire, call)
      shard.dispatcher.dispatch({ origin: this.#origin, path, method: 'POST', headers, body }, exchange)
    })
  }

  endSession(sessionId: string): void {
    this.#main.wire.prompts.forget(sessionId)
  }

  #headersFor({ bodyHeaders, sessionId, retry, traceparent }: BackendRequest): string[] {
    const headers = bodyHeaders ? this.#withBodyHeaders(bodyHeaders) : this.#headers.slice()
    for (const name of routingHeaders) if (!this.#fixedHeaders.has(name)) headers.push(name, sessionId)
    if (retry > 0) headers.push('x-stainless-retry-count', String(retry))
    if (traceparent !== undefined) headers.push('traceparent', traceparent)
    return headers
  }

  #withBodyHeaders(bodyHeaders: Readonly<Record<string, string>>): string[] {
    const own = Object.entries(bodyHeaders).filter(([name]) => !this.#fixedHeaders.has(name))
    const names = new Set(own.map(([name]) => name))
    const headers = own.flat()
    for (let index = 0; index < this.#headers.length; index += 2) {
      const [name = '', value = ''] = this.#headers.slice(index, index + 2)
      if (!names.has(name)) headers.push(name, value)
    }
    return headers
  }

  protected override async onClose(): Promise<void> {
    this.#weights?.close()
    await using parts = new AsyncDisposableStack()
    parts.use(this.#decoding)
    parts.use(this.#connections)
    parts.use(this.#openControls)
  }

  /** Sends a request whose answer is short: a POST if it has a body. Rejects if there is no answer at all. */
  ask(
    path: string,
    signal: AbortSignal,
    {
      body,
      headers = this.#headers,
      source = this.#main.wire.source,
      timeoutMs = shortAnswerTimeoutMs,
      connections = this.#connections,
    }: ShortRequestOptions = {},
  ): Promise<ShortAnswer> {
    const method = body === undefined ? 'GET' : 'POST'
    const query = path.includes('?') ? this.#query.replace('?', '&') : this.#query
    const asked = { method, path: path + query, headers, body, source, signal, timeoutMs } as const
    return shortRequest(connections, { origin: this.#origin, ...asked })
  }

  /** Asks now for the version of replies that have ended, if any of them waits for it. */
  async findWeights(): Promise<void> {
    await this.#weights?.look()
  }

  /** The weights are about to change: of what replies are from now on is not known. */
  async beginWeightChange(): Promise<void> {
    await this.findWeights()
    this.#weights?.set(undefined)
  }

  /** The backend has taken these weights. */
  endWeightChange(version: SetVersion): void {
    this.#weights?.set(version)
  }
}

function laterVersion(weights: WeightWatch, seen: WeightVersion | undefined): LaterVersion {
  const reply = weights.ended(seen)
  return {
    before: seen?.version,
    get last() {
      return weights.last
    },
    find: () => weights.versionOf(reply),
    look: () => weights.look(),
  }
}

/** What the log-probabilities of an engine are unless it was started with another mode. */
const usualLogprobs: Readonly<Record<EngineName, LogprobsKind>> = { vllm: 'raw', sglang: 'processed' }

function connectionShare(
  model: ModelConfig,
  { workers, clients, backends = model.backends.length }: HttpBackendOptions,
): number {
  const share = Math.floor(descriptorBudget({ workers, clients }) / Math.max(1, backends))
  return Math.max(1, Math.min(model.maxConcurrency, share))
}
