import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import {
  chatServer,
  generateServer,
  messagesServer,
  responsesServer,
  type ServerDialect,
} from '../../dialects/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { goneStatus, type Caller, type Gateway } from '../../gateway/index.ts'
import { apiPaths, countPaths } from '../../schema/index.ts'
import type { BodyIntake, HeldBody } from '../_body-intake.ts'
import { clientGone } from '../_client-gone.ts'
import { callerFrom, unauthorized } from './_callers.ts'
import { GatewayReply } from './_reply.ts'
import { requestIdOf } from './_request-id.ts'
import type { GatewayBounds } from './gateway-bounds.ts'
import { gatewayRefusals } from './gateway-refusals.ts'

interface ModelRoute {
  readonly path: string
  readonly dialect: ServerDialect
  readonly countsOnly?: true
}

/** Each API at the path where its clients look for it. */
const routes: readonly ModelRoute[] = [
  { path: `/v1${apiPaths.chat}`, dialect: chatServer },
  { path: `/v1${apiPaths.responses}`, dialect: responsesServer },
  { path: `/v1${apiPaths.messages}`, dialect: messagesServer },
  { path: '/generate', dialect: generateServer },
  { path: `/v1${countPaths.responses}`, dialect: responsesServer, countsOnly: true },
  { path: `/v1${countPaths.messages}`, dialect: messagesServer, countsOnly: true },
]

export interface ModelRouteParts {
  readonly gateway: Gateway
  readonly intake: BodyIntake
  readonly bounds: Pick<GatewayBounds, 'maxStallMs' | 'maxJsonDepth'>
}

/** The models, each API at its own path and once more below each session's. */
export function modelRoutes(app: FastifyInstance, parts: ModelRouteParts): void {
  for (const route of routes) {
    app.register((scope, _options, done) => {
      // The body is read by the exchange, which knows how to refuse it. Most say that it is JSON: a type that is named is
      // looked up, while one that falls under `*` is parsed with each request.
      scope.addContentTypeParser(['application/json', '*'], (_request, _payload, parsed) => parsed(null))
      scope.setErrorHandler((error, request, reply) => {
        begin(parts, route, request, reply).refuse(MillraceError.from(error, 'usage'))
      })
      const handler = (request: FastifyRequest, reply: FastifyReply): void => {
        begin(parts, route, request, reply).start()
      }
      const config = { dialectFor: () => route.dialect }
      scope.post(route.path, { config }, handler)
      scope.post(`/sessions/:id${route.path}`, { config }, handler)
      done()
    })
  }
}

function begin(
  parts: ModelRouteParts,
  route: ModelRoute,
  { raw, params }: FastifyRequest,
  reply: FastifyReply,
): ModelExchange {
  reply.hijack()
  const { id } = params as { readonly id?: string }
  return new ModelExchange(parts, route, raw, { response: reply.raw, sessionId: id })
}

/** One request for a model, from its headers to its end. */
class ModelExchange {
  readonly #parts: ModelRouteParts
  readonly #route: ModelRoute
  readonly #request: IncomingMessage
  readonly #sessionId: string | undefined
  readonly #requestId: string
  readonly #reply: GatewayReply
  readonly #startedAt = performance.now()

  constructor(
    parts: ModelRouteParts,
    route: ModelRoute,
    request: IncomingMessage,
    { response, sessionId }: { readonly response: ServerResponse; readonly sessionId: string | undefined },
  ) {
    this.#parts = parts
    this.#route = route
    this.#request = request
    this.#sessionId = sessionId
    this.#requestId = requestIdOf(request.headers['x-request-id'])
    const { maxStallMs } = parts.bounds
    this.#reply = new GatewayReply(response, { api: route.dialect.api, requestId: this.#requestId, maxStallMs })
  }

  /** Never throws: nobody else answers any more. */
  start(): void {
    try {
      this.#start()
    } catch (error) {
      this.refuse(MillraceError.from(error, 'internal'))
    }
  }

  #start(): void {
    const { gateway, intake } = this.#parts
    const { headers } = this.#request
    const caller = callerFrom(gateway, headers)
    if (!caller) return this.refuse(unauthorized(headers))
    intake.read(this.#request, (problem, body) => {
      if (body) void this.#interact(caller, body)
      else if (problem) this.refuse(problem)
      else this.#publish(goneStatus, clientGone())
    })
  }

  refuse(error: MillraceError): void {
    const { dialect } = this.#route
    const { status, headers, body } = dialect.error(error)
    this.#reply.whole(status, headers, JSON.stringify(body))
    this.#publish(status, error)
  }

  #publish(status: number, error: MillraceError): void {
    if (!gatewayRefusals.hasSubscribers) return
    const ms = performance.now() - this.#startedAt
    const { folder } = this.#parts.gateway
    const { api } = this.#route.dialect
    gatewayRefusals.publish({ folder, api, requestId: this.#requestId, status, ms, error })
  }

  async #interact(caller: Caller, held: HeldBody): Promise<void> {
    using body = held
    const { headers } = this.#request
    const { traceparent } = headers
    const { dialect, countsOnly } = this.#route
    const { api } = dialect
    const { gateway, bounds } = this.#parts
    await gateway.interact(
      {
        caller,
        api,
        body: body.bytes,
        maxJsonDepth: bounds.maxJsonDepth,
        ...(countsOnly && { countsOnly }),
        ...(api === 'messages' && { bodyHeaders: anthropicHeaders(headers) }),
        requestId: this.#requestId,
        retryCount: Number(headers['x-stainless-retry-count'] ?? 0) || 0,
        ...(this.#sessionId !== undefined && { sessionId: this.#sessionId }),
        ...(typeof traceparent === 'string' && { traceparent }),
      },
      this.#reply,
    )
  }
}

/** Which form of the API the body is written in, and what it uses beyond that. */
function anthropicHeaders(headers: IncomingHttpHeaders): Record<string, string> {
  const said: Record<string, string> = {}
  for (const name of ['anthropic-version', 'anthropic-beta']) {
    const value = headers[name]
    if (typeof value === 'string') said[name] = value
  }
  return said
}
