import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { messagesServer, type ServerDialect } from '../../apis/index.ts'
import { MillraceError } from '../../errors/index.ts'
import type { Gateway } from '../../gateway/index.ts'
import { nearestName, timerMs } from '../../kit/index.ts'
import type { RunReader } from '../../store/index.ts'
import type { MetricsHub } from '../../telemetry/index.ts'
import { arealRoutes } from '../compat/areal/areal-routes.ts'
import type { ArealWire } from '../compat/areal/areal-wire.ts'
import type { CookieSessions } from '../compat/nemo-gym/cookie-sessions.ts'
import { headRoutes } from '../compat/nemo-gym/head-routes.ts'
import { refuseOnGymWire } from '../compat/nemo-gym/wire-scope.ts'
import { BodyIntake } from '../http/body.ts'
import { isServerFault, plainError, refuse, replyWithError } from '../http/errors.ts'
import { setAllowHeader, type RouteRegistry, refuseUnrouted, type UnknownRoute } from '../http/routes.ts'
import { HttpServer } from '../http/server.ts'
import { healthRoutes, type Readiness, readyRoute, statusRoutes } from '../http/status-routes.ts'
import {
  adminOf,
  callerFrom,
  ConnectionAdmission,
  type ConnectionFigures,
  endIdleConnections,
  requestIdOf,
  requireCaller,
} from './admission.ts'
import { fleetRoutes } from './fleet-routes.ts'
import { defaultGatewayBounds, type GatewayBounds } from './gateway-config.ts'
import { modelListRoutes, modelRoutes } from './model-routes.ts'
import type { Registry } from './registry.ts'
import { registryRoutes } from './registry-routes.ts'
import { ExportTurns, sessionRoutes } from './session-routes.ts'
import { gatewayInfo, keys } from './session-schemas.ts'

interface GatewayHttpServerOptions {
  readonly gateway: Gateway
  readonly registry: Registry
  readonly reader: RunReader
  readonly metrics: MetricsHub
  /** Who may see and control what is of all tenants. */
  readonly operatorTenant: string
  readonly readiness: () => Readiness
  readonly version: string
  readonly host?: string
  readonly port: number
  /** Where clients reach it, without a slash at its end; if not given, at the host that they name themselves. */
  readonly publicUrl?: string
  readonly maxSockets: number
  readonly bounds?: Partial<GatewayBounds>
  /** If they are there, it is a model server of NeMo Gym, too. */
  readonly cookieSessions?: CookieSessions
  /** If it is there, AReaL's clients may use it, too. */
  readonly areal?: ArealWire
  readonly onFault?: (error: MillraceError) => void
}

interface ServerFigures extends ConnectionFigures {
  readonly bodyBytes: number
}

/** The way to a `Gateway` over HTTP. It has no logic of its own: it parses, calls and encodes. */
export class GatewayHttpServer extends HttpServer {
  readonly #intake: BodyIntake
  readonly #admission: ConnectionAdmission

  private constructor(options: GatewayHttpServerOptions) {
    const { maxUploadMs, maxStallMs, ...given } = { ...defaultGatewayBounds, ...options.bounds }
    const bounds = { ...given, maxUploadMs: timerMs(maxUploadMs), maxStallMs: timerMs(maxStallMs) }
    const { gateway, host = '127.0.0.1', maxSockets, cookieSessions, areal, onFault } = options
    super(host, {
      // Every route asks for a key, but for the probes, which tell nothing worth hiding.
      isKeyless: false,
      limits: { maxHeaderBytes: bounds.maxHeaderBytes, maxUploadMs: bounds.maxUploadMs },
      refusalBody: (refusal) => plainError(refusal.status, refusal).body,
    })
    const { app } = this
    endIdleConnections(app.server, this.openResponses)
    this.#admission = new ConnectionAdmission(app, maxSockets)
    this.#intake = new BodyIntake({ ...bounds, fullStatus: 503 })
    app.removeAllContentTypeParsers()
    const exportTurns = new ExportTurns(bounds)
    modelRoutes(app, { gateway, intake: this.#intake, bounds, cookieSessions, areal })
    app.register((scope, _options, done) => {
      answerErrors(scope, bounds.maxStallMs, onFault)
      // Claude Code asks its base URL for a sign of life before anything else.
      healthRoutes(scope, '/health', '/')
      readyRoute(
        scope,
        'Whether a request that is sent now would be answered: a backend is reachable and not overloaded, the store works, no drain.',
        options.readiness,
      )
      done()
    })
    if (cookieSessions) {
      app.register((scope, _options, done) => {
        answerErrors(scope, bounds.maxStallMs, onFault)
        scope.addHook('onRequest', ({ headers }, reply, next) => {
          const refusal = cookieSessions.refusal(headers)
          if (refusal === undefined) next()
          else void refuse(reply, 'forbidden', refusal)
        })
        headRoutes(scope, () => gateway.models().map(({ id }) => ({ name: id, kind: 'responses_api_models' })))
        done()
      })
    }
    if (areal) {
      app.register((scope, _options, done) => {
        nameRequests(scope, bounds.maxStallMs)
        arealRoutes(scope, { wire: areal, intake: this.#intake, exportTurns, onFault })
        done()
      })
    }
    app.register((scope, _options, done) => {
      nameRequests(scope, bounds.maxStallMs)
      modelListRoutes(scope, { gateway, areal, onFault })
      done()
    })
    app.register((scope, _options, done) => {
      answerErrors(scope, bounds.maxStallMs, onFault)
      requireCaller(scope, gateway)
      // Bodies are read by the routes that want one.
      scope.addContentTypeParser('*', (_request, _payload, parsed) => parsed(null))
      const { metrics, operatorTenant, version, reader, publicUrl } = options
      statusRoutes(scope, {
        metrics,
        requireMetricsAccess: (request) => requireOperator(request, operatorTenant, 'the metrics cover all tenants'),
        metricsKey: keys.admin,
        documentKey: keys.session,
        routes: this.knownRoutes,
        info: gatewayInfo,
        version,
      })
      sessionRoutes(scope, { gateway, reader, intake: this.#intake, exportTurns, bounds, publicUrl, onFault })
      const operated = {
        intake: this.#intake,
        bounds,
        requireOperator: (request: FastifyRequest) =>
          requireOperator(request, operatorTenant, 'backends and keys are of all tenants'),
      }
      fleetRoutes(scope, { fleet: gateway.fleet, ...operated })
      registryRoutes(scope, { gateway, registry: options.registry, ...operated })
      done()
    })
    app.setNotFoundHandler(async (request, reply) => {
      reply.header('x-request-id', requestIdOf(request.headers['x-request-id']))
      const routes = this.knownRoutes
      const unrouted = routes.unrouted(request, (path) => pathHint(request.method, path, routes))
      const isGym = cookieSessions?.takes(request.headers) && !callerFrom(gateway, request.headers)
      const refused = isGym ? refuseOnGymWire(request, reply, unrouted) : undefined
      if (refused) return await refused
      const dialect = dialectFor(request, unrouted)
      if (isWebSocket(request) && unrouted.beside.length > 0) return await refuseWebSocket(reply, request, dialect)
      if (!dialect) return await refuseUnrouted(reply, unrouted)
      setAllowHeader(reply, unrouted)
      const status = unrouted.beside.length > 0 ? 405 : 404
      const { headers, body } = dialect.error(new MillraceError('usage', unrouted.message, { data: { status } }))
      return await reply.code(status).headers(headers).send(body)
    })
  }

  static async open(options: GatewayHttpServerOptions): Promise<GatewayHttpServer> {
    const httpServer = new GatewayHttpServer(options)
    await httpServer.listen(options.port)
    return httpServer
  }

  get figures(): ServerFigures {
    return { ...this.#admission.figures, bodyBytes: this.#intake.bufferedBytes }
  }
}

function requireOperator(request: FastifyRequest, operatorTenant: string, why: string): void {
  if (adminOf(request).tenant === operatorTenant) return
  const message = `${why}: send an admin key of tenant ${operatorTenant}, such as MILLRACE_ADMIN_KEY`
  throw new MillraceError('usage', message, { data: { status: 403 } })
}

function isWebSocket({ headers }: FastifyRequest): boolean {
  return headers.upgrade?.toLowerCase() === 'websocket'
}

/** Clients that prefer WebSockets, such as Codex, use plain requests once they see this status; others make them try again. */
async function refuseWebSocket(
  reply: FastifyReply,
  { url }: FastifyRequest,
  dialect: ServerDialect | undefined,
): Promise<FastifyReply> {
  const message = `${url.split('?', 1)[0]} does not speak WebSocket; send a POST request, streamed or not`
  const error = new MillraceError('usage', message, { data: { status: 426 } })
  reply.header('upgrade', 'HTTP/1.1').code(426)
  return dialect ? await reply.send(dialect.error(error).body) : await replyWithError(reply, error)
}

/** What asks no model: an id for every reply, and an end for those that nobody takes. */
function nameRequests(scope: FastifyInstance, maxStallMs: number): void {
  scope.addHook('onRequest', ({ headers }, reply, next) => {
    reply.header('x-request-id', requestIdOf(headers['x-request-id']))
    reply.raw.setTimeout(maxStallMs)
    next()
  })
}

/** The same, with all refusals in one shape. */
function answerErrors(scope: FastifyInstance, maxStallMs: number, onFault: GatewayHttpServerOptions['onFault']): void {
  nameRequests(scope, maxStallMs)
  scope.setErrorHandler(async (thrown, _request, reply) => {
    const error = MillraceError.from(thrown, 'internal')
    const sent = replyWithError(reply, thrown)
    if (isServerFault(error, reply.statusCode)) onFault?.(error)
    return await sent
  })
}

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Whose words the clients of a route understand; none if those of the HTTP server. */
    dialectFor?: (request: Pick<FastifyRequest, 'headers'>) => ServerDialect
  }
}

/** In whose words a request without a route is refused: clients look for the kind of an error where only their API has it. */
function dialectFor(request: FastifyRequest, { beside: [route] }: UnknownRoute): ServerDialect | undefined {
  if (route?.config?.dialectFor) return route.config.dialectFor(request)
  return request.headers['anthropic-version'] === undefined ? undefined : messagesServer
}

/** Names the path that was probably meant, where a base url had a slash or `/v1` too many or too few, or a name is misspelt. */
function pathHint(method: string, path: string, routes: RouteRegistry): string {
  const plain = path.replaceAll(/\/{2,}/g, '/').replace(/\/$/, '')
  const candidates = [plain, plain.replace(/(\/v1)+\//, '/v1/'), plain.replace(/^(\/sessions\/[^/]+)?\//, '$1/v1/')]
  const meant = candidates.find((candidate) => routes.at(candidate).some((route) => route.method === method))
  if (meant !== undefined) return `did you mean ${method} ${meant}? Check the base URL of the client`
  const name = plain.slice(plain.lastIndexOf('/') + 1)
  const ending = nearestName(name, routes.endings(method, plain))
  if (ending !== undefined) return `did you mean ${method} ${plain.slice(0, -name.length)}${ending}?`
  return 'GET /openapi.json lists the routes'
}
