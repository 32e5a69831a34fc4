import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import type { ServerDialect } from '../../dialects/index.ts'
import { MillraceError } from '../../errors/index.ts'
import type { Gateway } from '../../gateway/index.ts'
import { timerMs } from '../../kit/index.ts'
import type { RunReader } from '../../store/index.ts'
import type { MetricsHub } from '../../telemetry/index.ts'
import { BodyIntake } from '../_body-intake.ts'
import { Door } from '../_door.ts'
import { replyWithError } from '../_door-error.ts'
import { allowOthers, refuseUnrouted } from '../_known-routes.ts'
import { probeRoutes } from '../_probe-routes.ts'
import { ConnectionAdmission, type ConnectionFigures } from './_connection-admission.ts'
import { requireCaller } from './_callers.ts'
import { dialectFor } from './_dialect-for.ts'
import { endIdleConnections } from './_idle.ts'
import { isFault } from './_is-fault.ts'
import { modelListRoutes } from './_model-list.ts'
import { modelRoutes } from './_model-routes.ts'
import { pathHint } from './_path-hint.ts'
import { plainError } from './_plain-error.ts'
import { requestIdOf } from './_request-id.ts'
import { sessionRoutes } from './_session-routes.ts'
import { statusRoutes } from './_status-routes.ts'
import { defaultGatewayBounds, type GatewayBounds } from './gateway-bounds.ts'
import type { Readiness } from '../_readiness.ts'

export interface GatewayDoorOptions {
  readonly gateway: Gateway
  /** Reads the run that the gateway writes. */
  readonly reader: RunReader
  readonly metrics: MetricsHub
  /** Whose admins may read them; every admin if not given. */
  readonly metricsTenant?: string
  readonly readiness: () => Promise<Readiness>
  /** Millrace's own. */
  readonly version: string
  /** 127.0.0.1 if not given. */
  readonly host?: string
  /** 0 for any free one. */
  readonly port: number
  /** Where clients reach it, without a slash at its end; if not given, at the host that they name themselves. */
  readonly publicUrl?: string
  /** Sockets that clients may hold in all. */
  readonly maxSockets: number
  readonly bounds?: Partial<GatewayBounds>
  /** Hears of what is a fault of the gateway's own. */
  readonly onFault?: (error: MillraceError) => void
}

export interface DoorFigures extends ConnectionFigures {
  readonly bodyBytes: number
}

/** The way to a `Gateway` over HTTP. It has no logic of its own: it parses, calls and encodes. */
export class GatewayDoor extends Door {
  readonly #intake: BodyIntake
  readonly #admission: ConnectionAdmission

  private constructor(options: GatewayDoorOptions) {
    const { maxUploadMs, maxStallMs, ...given } = { ...defaultGatewayBounds, ...options.bounds }
    const bounds = { ...given, maxUploadMs: timerMs(maxUploadMs), maxStallMs: timerMs(maxStallMs) }
    const { gateway, host = '127.0.0.1', maxSockets, onFault } = options
    super(host, {
      // Every route asks for a key, but for the probes, which tell nothing worth hiding.
      isKeyless: false,
      limits: { maxHeaderBytes: bounds.maxHeaderBytes, maxUploadMs: bounds.maxUploadMs },
      refusalBody: (refusal) => plainError(refusal.status, refusal).body,
    })
    const { app } = this
    endIdleConnections(app.server)
    this.#admission = new ConnectionAdmission(app, maxSockets)
    this.#intake = new BodyIntake({ ...bounds, fullStatus: 503 })
    app.removeAllContentTypeParsers()
    modelRoutes(app, { gateway, intake: this.#intake, bounds })
    const words = { onFault, bounds }
    app.register((scope, _options, done) => {
      answerInDoorWords(scope, words)
      probeRoutes(scope, options.readiness)
      // Claude Code asks its base URL for a sign of life before anything else.
      scope.get('/', async (_request, reply) => await reply.send({ status: 'ok' }))
      done()
    })
    app.register((scope, _options, done) => {
      nameRequests(scope, bounds)
      modelListRoutes(scope, { gateway, onFault })
      done()
    })
    app.register((scope, _options, done) => {
      answerInDoorWords(scope, words)
      requireCaller(scope, gateway)
      // Bodies are read by the routes that want one.
      scope.addContentTypeParser('*', (_request, _payload, parsed) => parsed(null))
      statusRoutes(scope, options)
      const { reader, publicUrl } = options
      sessionRoutes(scope, { gateway, reader, intake: this.#intake, bounds, publicUrl, onFault })
      done()
    })
    app.setNotFoundHandler(async (request, reply) => {
      reply.header('x-request-id', requestIdOf(request.headers['x-request-id']))
      const routes = this.knownRoutes
      const unrouted = routes.unrouted(request, (path) => pathHint(request.method, path, routes))
      const dialect = dialectFor(request, unrouted)
      if (isWebSocket(request) && unrouted.beside.length > 0) return await refuseWebSocket(reply, request, dialect)
      if (!dialect) return await refuseUnrouted(reply, unrouted)
      allowOthers(reply, unrouted)
      const status = unrouted.beside.length > 0 ? 405 : 404
      const { headers, body } = dialect.error(new MillraceError('usage', unrouted.message, { data: { status } }))
      return await reply.code(status).headers(headers).send(body)
    })
  }

  /** Resolves once it listens. */
  static async open(options: GatewayDoorOptions): Promise<GatewayDoor> {
    const door = new GatewayDoor(options)
    await door.listen(options.port)
    return door
  }

  get figures(): DoorFigures {
    return { ...this.#admission.figures, bodyBytes: this.#intake.heldBytes }
  }
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
function nameRequests(scope: FastifyInstance, { maxStallMs }: Pick<GatewayBounds, 'maxStallMs'>): void {
  scope.addHook('onRequest', ({ headers }, reply, next) => {
    reply.header('x-request-id', requestIdOf(headers['x-request-id']))
    reply.raw.setTimeout(maxStallMs)
    next()
  })
}

interface DoorWords {
  readonly onFault: GatewayDoorOptions['onFault']
  readonly bounds: Pick<GatewayBounds, 'maxStallMs'>
}

/** The same, with all refusals in one shape. */
function answerInDoorWords(scope: FastifyInstance, { onFault, bounds }: DoorWords): void {
  nameRequests(scope, bounds)
  scope.setErrorHandler(async (thrown, _request, reply) => {
    const error = MillraceError.from(thrown, 'internal')
    const sent = replyWithError(reply, thrown)
    if (isFault(error, reply.statusCode)) onFault?.(error)
    return await sent
  })
}
