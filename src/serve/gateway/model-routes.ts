import type { IncomingHttpHeaders, ServerResponse } from 'node:http'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { chatServer, generateServer, messagesServer, responsesServer, type ServerDialect } from '../../apis/index.ts'
import { HttpReply } from '../../endpoint/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { type Caller, type Gateway, clientClosedStatus, type OfferedModel } from '../../gateway/index.ts'
import { apiPaths, countPaths } from '../../schema/index.ts'
import type { ArealWire } from '../compat/areal/areal-wire.ts'
import type { CookieSessions } from '../compat/nemo-gym/cookie-sessions.ts'
import { gymDialect } from '../compat/nemo-gym/model-dialect.ts'
import type { BodyIntake } from '../http/body.ts'
import { isServerFault } from '../http/errors.ts'
import { callerFrom, requestIdOf, unauthorized } from './admission.ts'
import type { GatewayBounds } from './gateway-config.ts'
import { keys } from './session-schemas.ts'
import { gatewayRefusals } from './telemetry.ts'

interface ModelRoute {
  readonly path: string
  readonly dialect: ServerDialect
  readonly countsOnly?: true
  /** Only for AReaL's clients. */
  readonly isAreal?: true
  readonly summary: string
  readonly vendorDocs: string
}

const openAiDocs = 'https://platform.openai.com/docs/api-reference'
const anthropicDocs = 'https://docs.anthropic.com/en/api'

const routes: readonly ModelRoute[] = [
  {
    path: `/v1${apiPaths.chat}`,
    dialect: chatServer,
    summary: 'OpenAI’s Chat Completions.',
    vendorDocs: `${openAiDocs}/chat/create`,
  },
  {
    path: `/v1${apiPaths.responses}`,
    dialect: responsesServer,
    summary: 'OpenAI’s Responses.',
    vendorDocs: `${openAiDocs}/responses/create`,
  },
  {
    path: `/v1${apiPaths.messages}`,
    dialect: messagesServer,
    summary: 'Anthropic’s Messages.',
    vendorDocs: `${anthropicDocs}/messages`,
  },
  {
    path: '/generate',
    dialect: generateServer,
    summary: 'SGLang’s own API, for models that SGLang serves.',
    vendorDocs: 'https://docs.sglang.ai/basic_usage/native_api.html',
  },
  {
    path: `/v1${countPaths.responses}`,
    dialect: responsesServer,
    countsOnly: true,
    summary: 'Counts the tokens of a request of OpenAI’s Responses; nothing is sampled.',
    vendorDocs: `${openAiDocs}/responses/input-tokens`,
  },
  {
    path: `/v1${countPaths.messages}`,
    dialect: messagesServer,
    countsOnly: true,
    summary: 'Counts the tokens of a request of Anthropic’s Messages; nothing is sampled.',
    vendorDocs: `${anthropicDocs}/messages-count-tokens`,
  },
]

const arealRoute: ModelRoute = {
  path: apiPaths.chat,
  dialect: chatServer,
  isAreal: true,
  summary: 'OpenAI’s Chat Completions, in a session of AReaL.',
  vendorDocs: `${openAiDocs}/chat/create`,
}

interface ModelRouteParts {
  readonly gateway: Gateway
  readonly intake: BodyIntake
  readonly bounds: Pick<GatewayBounds, 'maxStallMs' | 'maxJsonDepth'>
  /** If it is there, clients of NeMo Gym need no key. */
  readonly cookieSessions: CookieSessions | undefined
  /** If it is there, clients of AReaL have their errors in AReaL's shapes. */
  readonly areal: ArealWire | undefined
}

export function modelRoutes(app: FastifyInstance, parts: ModelRouteParts): void {
  for (const route of parts.areal ? [...routes, arealRoute] : routes) {
    app.register((scope, _options, done) => {
      // The body is read by the exchange, which knows how to refuse it. Most say that it is JSON: a type that is named is
      // looked up, while one that falls under `*` is parsed with each request.
      scope.addContentTypeParser(['application/json', '*'], (_request, _payload, parsed) => parsed(null))
      scope.setErrorHandler((error, request, reply) => {
        const exchange = new ModelExchange(parts, route, request, reply)
        exchange.refuse(MillraceError.from(error, 'usage'))
      })
      const handler = (request: FastifyRequest, reply: FastifyReply): void => {
        void new ModelExchange(parts, route, request, reply).run()
      }
      const { path, dialect, summary, vendorDocs } = route
      const config = { dialectFor: () => dialect, api: { summary, key: keys.session, vendorDocs } }
      const gymCookies = parts.cookieSessions?.cookies
      scope.post(path, { config: { ...config, ...(gymCookies && { gymCookies }) } }, handler)
      if (!route.isAreal) scope.post(`/sessions/:id${path}`, { config }, handler)
      done()
    })
  }
}

type Entered = { readonly caller: Caller } & Disposable

class ModelExchange {
  readonly #parts: ModelRouteParts
  readonly #route: ModelRoute
  readonly #request: FastifyRequest
  readonly #requestId: string
  readonly #response: ServerResponse
  readonly #reply: HttpReply
  /** The route's own, but for a client of NeMo Gym or AReaL. */
  #dialect: ServerDialect
  readonly #startedAt = performance.now()

  constructor(parts: ModelRouteParts, route: ModelRoute, request: FastifyRequest, reply: FastifyReply) {
    reply.hijack()
    this.#parts = parts
    this.#route = route
    this.#request = request
    this.#requestId = requestIdOf(request.headers['x-request-id'])
    this.#response = reply.raw
    this.#dialect = route.dialect
    const { api } = route.dialect
    const { maxStallMs } = parts.bounds
    this.#reply = new HttpReply(reply.raw, { api, requestId: this.#requestId, maxStallMs })
  }

  get #sessionId(): string | undefined {
    return (this.#request.params as { readonly id?: string }).id
  }

  /** Never rejects: nobody else answers any more. */
  async run(): Promise<void> {
    const { gateway, intake, bounds } = this.#parts
    const { headers, raw } = this.#request
    const { countsOnly } = this.#route
    const sessionId = this.#sessionId
    const { traceparent } = headers
    const routingKey = sessionId === undefined ? routingKeyIn(headers) : undefined
    try {
      const entering = this.#enter()
      // Without waiting: what is wrong with a body may come in the same turn as its headers, and somebody must listen.
      using entered = entering instanceof Promise ? await entering : entering
      const { caller } = entered
      const dialect = this.#dialect
      const { api } = dialect
      using body = await intake.read(raw)
      await gateway.interact(
        {
          caller,
          api,
          dialect,
          body: body.bytes,
          maxJsonDepth: bounds.maxJsonDepth,
          ...(countsOnly && { countsOnly }),
          ...(api === 'messages' && { bodyHeaders: anthropicHeaders(headers) }),
          requestId: this.#requestId,
          retryCount: Number(headers['x-stainless-retry-count'] ?? 0) || 0,
          ...(sessionId !== undefined && { sessionId }),
          ...(routingKey !== undefined && { routingKey }),
          ...(typeof traceparent === 'string' && { traceparent }),
        },
        this.#reply,
      )
    } catch (error) {
      this.refuse(MillraceError.from(error, 'internal'))
    }
  }

  #enter(): Entered | Promise<Entered> {
    const { gateway, areal } = this.#parts
    const { headers } = this.#request
    if (areal && this.#isForAreal(areal)) {
      this.#dialect = areal.dialect
      return areal.enter(headers)
    }
    const known = callerFrom(gateway, headers)
    return known ? { caller: known, [Symbol.dispose]: () => {} } : this.#enterByCookie()
  }

  #isForAreal(areal: ArealWire): boolean {
    const { path, isAreal } = this.#route
    const isShared = path === `/v1${apiPaths.chat}` && this.#sessionId === undefined
    return isAreal === true || (isShared && areal.takes(this.#request.headers))
  }

  /** A client without a key is one of NeMo Gym, if such clients may come. */
  async #enterByCookie(): Promise<Entered> {
    const { gateway, cookieSessions } = this.#parts
    const { raw, headers } = this.#request
    const isGym = this.#sessionId === undefined && this.#dialect.api !== 'generate'
    if (!isGym || !cookieSessions?.takes(headers)) throw unauthorized(headers)
    this.#dialect = gymDialect(this.#dialect, (name) => gateway.modelNameFor(name))
    return await cookieSessions.use(raw, this.#response)
  }

  refuse(error: MillraceError): void {
    const dialect = this.#dialect
    const isGone = error.data['status'] === clientClosedStatus
    const { status, headers, body } = dialect.error(error)
    if (!isGone) this.#reply.whole(status, headers, JSON.stringify(body))
    if (!gatewayRefusals.hasSubscribers) return
    gatewayRefusals.publish({
      folder: this.#parts.gateway.folder,
      api: dialect.api,
      requestId: this.#requestId,
      status: isGone ? clientClosedStatus : status,
      ms: performance.now() - this.#startedAt,
      error,
    })
  }
}

/** As much of a key is remembered: keys are chosen by clients. */
const maxRoutingKey = 256

/** The key that clients of SGLang's and vLLM's routers send, so that the requests of a conversation meet the same backend. */
function routingKeyIn(headers: IncomingHttpHeaders): string | undefined {
  const key = headers['x-smg-routing-key'] ?? headers['x-session-id']
  return typeof key === 'string' && key !== '' ? key.slice(0, maxRoutingKey) : undefined
}

/** Which form of the API the body is written in, and what it uses beyond that. */
function anthropicHeaders(headers: IncomingHttpHeaders): Record<string, string> {
  const matched: Record<string, string> = {}
  for (const name of ['anthropic-version', 'anthropic-beta']) {
    const value = headers[name]
    if (typeof value === 'string') matched[name] = value
  }
  return matched
}

interface ListedModels {
  Params: { id?: string }
}

interface OneModel {
  Params: { id?: string; '*': string }
}

interface ModelListParts {
  readonly gateway: Gateway
  readonly areal: ArealWire | undefined
  readonly onFault: ((error: MillraceError) => void) | undefined
}

/** The models that there are, below the root and below each session. All is said in the words of the client's API. */
export function modelListRoutes(app: FastifyInstance, { gateway, areal, onFault }: ModelListParts): void {
  app.setErrorHandler(async (thrown, request, reply) => {
    const error = MillraceError.from(thrown, 'internal')
    const { status, headers, body } = shapeFor(request).dialect.error(error)
    if (isServerFault(error, status)) onFault?.(error)
    return await reply.code(status).headers(headers).send(body)
  })
  const requireAccess = ({ headers, params }: FastifyRequest<ListedModels>): Caller => {
    const caller = callerFrom(gateway, headers)
    if (!caller) throw unauthorized(headers)
    // A session that nobody knows, or that is another's, has no models either.
    if (params.id !== undefined) gateway.requireSession(caller, params.id)
    return caller
  }
  const dialectFor = (request: Pick<FastifyRequest, 'headers'>): ServerDialect => shapeFor(request).dialect
  const described = { key: keys.session, vendorDocs: 'https://platform.openai.com/docs/api-reference/models' }
  const all = { ...described, summary: 'The models, in Anthropic’s shape if `anthropic-version` is sent.' }
  const one = { ...described, summary: 'One model.' }
  for (const path of ['/v1/models', '/sessions/:id/v1/models']) {
    app.get<ListedModels>(path, { config: { dialectFor, api: all } }, async (request, reply) => {
      const { kind } = requireAccess(request)
      const list = shapeFor(request).list(gateway.models())
      // AReaL's clients look for names, and do not mind the rest; OpenAI's do not mind the names.
      const names = areal && kind === 'admin' && request.url === '/v1/models' && { models: areal.models }
      return await reply.send({ ...list, ...names })
    })
    // Names have slashes in them, and not every client escapes those.
    app.get<OneModel>(`${path}/*`, { config: { dialectFor, api: one } }, async (request, reply) => {
      requireAccess(request)
      return await reply.send(shapeFor(request).one(gateway.model(request.params['*'])))
    })
  }
}

interface ModelShape {
  readonly dialect: ServerDialect
  readonly one: (model: OfferedModel) => object
  readonly list: (models: readonly OfferedModel[]) => object
}

function shapeFor({ headers }: Pick<FastifyRequest, 'headers'>): ModelShape {
  return headers['anthropic-version'] === undefined ? openAi : anthropic
}

/** Nobody knows when a model was made; clients want a date all the same. */
const unknownDate = new Date(0)

const openAi: ModelShape = {
  dialect: chatServer,
  one: ({ id, contextLength }) => ({
    id,
    object: 'model',
    created: unknownDate.getTime() / 1000,
    owned_by: 'millrace',
    ...(contextLength !== undefined && { max_model_len: contextLength }),
  }),
  list: (models) => ({ object: 'list', data: models.map(openAi.one) }),
}

const anthropic: ModelShape = {
  dialect: messagesServer,
  one: ({ id, contextLength }) => ({
    type: 'model',
    id,
    display_name: id,
    created_at: unknownDate.toISOString(),
    ...(contextLength !== undefined && { max_input_tokens: contextLength }),
  }),
  list: (models) => ({
    data: models.map(anthropic.one),
    has_more: false,
    first_id: models[0]?.id ?? null,
    last_id: models.at(-1)?.id ?? null,
  }),
}
