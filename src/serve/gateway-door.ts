import type { FastifyInstance } from 'fastify'
import { MillraceError } from '../errors/index.ts'
import type { Gateway } from '../gateway/index.ts'
import type { RunReader } from '../store/index.ts'
import type { MetricsHub } from '../telemetry/index.ts'
import { Door } from './_door.ts'
import { refuse, replyWithError } from './_door-error.ts'
import { Admission, type AdmissionFigures } from './_gateway-admission.ts'
import { BodyIntake } from './_gateway-body.ts'
import { requireCaller } from './_gateway-callers.ts'
import { clientErrorAnswers } from './_gateway-client-error.ts'
import { modelRoutes } from './_gateway-model-routes.ts'
import { requestIdOf } from './_gateway-request-id.ts'
import { sessionRoutes } from './_gateway-session-routes.ts'
import { probeRoutes, statusRoutes } from './_gateway-status-routes.ts'
import { defaultGatewayBounds, type GatewayBounds } from './gateway-bounds.ts'
import type { Readiness } from './_readiness.ts'

export interface GatewayDoorOptions {
  readonly gateway: Gateway
  /** Reads the run that the gateway writes. */
  readonly reader: RunReader
  readonly metrics: MetricsHub
  readonly readiness: () => Promise<Readiness>
  /** Millrace's own. */
  readonly version: string
  /** 127.0.0.1 if not given. */
  readonly host?: string
  /** 0 for any free one. */
  readonly port: number
  /** Sockets that clients may hold in all. */
  readonly maxSockets: number
  readonly bounds?: Partial<GatewayBounds>
  /** Hears of what is a fault of the gateway's own. */
  readonly onFault?: (error: MillraceError) => void
}

export interface DoorFigures extends AdmissionFigures {
  readonly bodyBytes: number
}

/** Shorter than a load balancer keeps an idle connection, because every one of them counts here. */
const keepAliveMs = 60_000

/** The way to a `Gateway` over HTTP. It has no logic of its own: it parses, calls and encodes. */
export class GatewayDoor extends Door {
  readonly #intake: BodyIntake
  readonly #admission: Admission
  readonly #routes: string[] = []

  private constructor(options: GatewayDoorOptions) {
    const bounds = { ...defaultGatewayBounds, ...options.bounds }
    const { gateway, host = '127.0.0.1', maxSockets, onFault } = options
    super(host, {
      keepAliveTimeout: keepAliveMs,
      maxHeaderBytes: bounds.maxHeaderBytes,
      maxUploadMs: bounds.maxUploadMs,
      clientErrorHandler: clientErrorAnswers(bounds),
    })
    const { app } = this
    app.addHook('onRoute', ({ method, url }) => {
      // Every GET comes with a HEAD.
      if (method !== 'HEAD') this.#routes.push(`${String(method)} ${url.replaceAll(/:(\w+)/g, '{$1}')}`)
    })
    this.#admission = new Admission(app, maxSockets)
    this.#intake = new BodyIntake(bounds)
    app.removeAllContentTypeParsers()
    modelRoutes(app, { gateway, intake: this.#intake, bounds })
    app.register((scope, _options, done) => {
      answerInDoorWords(scope, onFault)
      probeRoutes(scope, options.readiness)
      done()
    })
    app.register((scope, _options, done) => {
      answerInDoorWords(scope, onFault)
      requireCaller(scope, gateway)
      // Bodies are read by the routes that want one.
      scope.addContentTypeParser('*', (_request, _payload, parsed) => parsed(null))
      statusRoutes(scope, options)
      sessionRoutes(scope, { gateway, reader: options.reader, intake: this.#intake })
      done()
    })
    app.setNotFoundHandler(async (request, reply) => {
      return await refuse(reply, 'not_found', `there is no ${request.method} ${request.url}`)
    })
  }

  /** Resolves once it listens. */
  static async open(options: GatewayDoorOptions): Promise<GatewayDoor> {
    const door = new GatewayDoor(options)
    await door.listen(options.port)
    return door
  }

  /** Each as `GET /v1/sessions/{id}`. */
  get routes(): readonly string[] {
    return this.#routes
  }

  get figures(): DoorFigures {
    return { ...this.#admission.figures, bodyBytes: this.#intake.heldBytes }
  }
}

/** What is not a model's route: an id for every reply, and refusals in one shape. */
function answerInDoorWords(scope: FastifyInstance, onFault: GatewayDoorOptions['onFault']): void {
  scope.addHook('onRequest', ({ headers }, reply, next) => {
    reply.header('x-request-id', requestIdOf(headers['x-request-id']))
    next()
  })
  scope.setErrorHandler(async (error, _request, reply) => {
    const sent = replyWithError(reply, error)
    if (reply.statusCode >= 500) onFault?.(MillraceError.from(error, 'internal'))
    return await sent
  })
}
