import type { IncomingMessage } from 'node:http'
import type { AddressInfo } from 'node:net'
import fastify, { type FastifyInstance, type FastifyRequest } from 'fastify'
import { MillraceError } from '../errors/index.ts'
import { Resource } from '../kit/index.ts'
import { AccessKey, requireKeyBeyondLoopback } from './access-key.ts'
import { BodyBudget } from './_body-budget.ts'
import { refuse, replyWithError } from './_door-error.ts'
import { readBody } from './_request-body.ts'
import { requestRoutes } from './_request-routes.ts'
import { rolloutRoutes } from './_rollout-routes.ts'
import { openPaths, statusRoutes } from './_status-routes.ts'
import { workerRoutes } from './_worker-routes.ts'
import type { RolloutService } from './rollout-service.ts'

export interface HttpDoorOptions {
  readonly service: RolloutService
  /** 127.0.0.1 if not given. Any other needs a key. */
  readonly host?: string
  /** 0 for any free one. */
  readonly port: number
  /** Asked for as a bearer token by everything but `/health` and `/ready`. */
  readonly accessKey?: string
  /** Hears of what is a fault of the server's own. */
  readonly onFault?: (error: MillraceError) => void
}

/** As many as a load generator opens at once: the kernel cuts it to its own limit. */
const backlog = 4_096
/** Longer than clients keep an idle connection, so that it is they who close it. */
const keepAliveMs = 5 * 60_000
/** A body takes up its share of memory from its first byte on, so it must not take for ever to arrive. */
const maxUploadMs = 2 * 60_000
/** How long a client that reads slowly may keep the door from closing. */
const closeGraceMs = 10_000
/** Twice the longest request id. */
const maxParamLength = 256

/** The way to a `RolloutService` over HTTP. It has no logic of its own: it parses, calls and encodes. */
export class HttpDoor extends Resource {
  readonly #app: FastifyInstance
  readonly #host: string

  private constructor(options: HttpDoorOptions) {
    super()
    const { service, accessKey, onFault } = options
    this.#host = options.host ?? '127.0.0.1'
    requireKeyBeyondLoopback(this.#host, accessKey)
    const app = fastify({
      keepAliveTimeout: keepAliveMs,
      requestTimeout: maxUploadMs,
      routerOptions: { maxParamLength },
      // A server that is closing says so in its own words.
      return503OnClosing: false,
      frameworkErrors: (error, _request, reply) => void replyWithError(reply, error),
    })
    this.#app = app
    const key = accessKey === undefined ? undefined : new AccessKey(accessKey)
    app.addHook('onRequest', (request, reply, next) => {
      const isAllowed =
        !key || openPaths.has(request.routeOptions.url ?? '') || key.allows(request.headers.authorization)
      if (isAllowed) next()
      else void refuse(reply, 'unauthorized', 'send the key of this server: authorization: Bearer <key>')
    })
    app.addHook('onResponse', ({ raw }, _reply, next) => {
      // A connection whose reply ended while the door closes would be kept for the next request.
      if (this.isClosed) raw.socket.destroySoon()
      next()
    })
    const bodies = new BodyBudget(service.bounds)
    bodies.guard(app)
    app.removeAllContentTypeParsers()
    app.addContentTypeParser('application/json', async ({ headers }: FastifyRequest, payload: IncomingMessage) => {
      return await readBody(payload, Number(headers['content-length'] ?? 0), service.codec)
    })
    app.setNotFoundHandler(async (request, reply) => {
      return await refuse(reply, 'not_found', `there is no ${request.method} ${request.url}`)
    })
    app.setErrorHandler(async (error, _request, reply) => {
      const sent = replyWithError(reply, error)
      if (reply.statusCode >= 500) onFault?.(MillraceError.from(error, 'internal'))
      return await sent
    })
    statusRoutes(app, service)
    rolloutRoutes(app, service, bodies)
    requestRoutes(app, service)
    workerRoutes(app, service)
  }

  /** Resolves once it listens. */
  static async open(options: HttpDoorOptions): Promise<HttpDoor> {
    const door = new HttpDoor(options)
    const { port } = options
    try {
      await door.#app.listen({ host: door.#host, port, backlog })
      return door
    } catch (error) {
      await door.close()
      const { rawMessage } = MillraceError.from(error, 'config_invalid')
      throw new MillraceError(
        'config_invalid',
        `cannot listen on ${door.#host}:${port}: ${rawMessage}. Choose another --port, or 0 for any`,
        { cause: error },
      )
    }
  }

  get url(): string {
    const { port } = this.#app.server.address() as AddressInfo
    return `http://${this.#host.includes(':') ? `[${this.#host}]` : this.#host}:${port}`
  }

  /** Lets replies that are being made go out, for a while; those that wait for results end with the service. */
  protected async onClose(): Promise<void> {
    const timer = setTimeout(() => this.#app.server.closeAllConnections(), closeGraceMs)
    await this.#app.close()
    clearTimeout(timer)
  }
}
