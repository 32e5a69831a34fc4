import { MillraceError } from '../errors/index.ts'
import { packageVersion } from '../kit/index.ts'
import { AccessKey, requireAccessKey } from './access-key.ts'
import { BodyIntake } from './_body-intake.ts'
import { Door } from './_door.ts'
import { refuse, replyWithError } from './_door-error.ts'
import { refuseUnrouted } from './_known-routes.ts'
import { metricsRoute } from './_metrics-route.ts'
import { openPaths, probeRoutes } from './_probe-routes.ts'
import { openApiRoute } from './_openapi.ts'
import { requestRoutes } from './_request-routes.ts'
import { rolloutRoutes } from './_rollout-routes.ts'
import { workerRoutes } from './_worker-routes.ts'
import type { RolloutService } from './rollout-service.ts'
import { serveApi } from './serve-operations.ts'

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

/** The way to a `RolloutService` over HTTP. It has no logic of its own: it parses, calls and encodes. */
export class HttpDoor extends Door {
  private constructor(options: HttpDoorOptions) {
    const { service, accessKey, onFault, host = '127.0.0.1' } = options
    requireAccessKey(host, accessKey)
    super(host, { isKeyless: accessKey === undefined })
    const { app } = this
    const key = accessKey === undefined ? undefined : new AccessKey(accessKey)
    app.addHook('onRequest', (request, reply, next) => {
      const isAllowed =
        !key || openPaths.has(request.routeOptions.url ?? '') || key.allows(request.headers.authorization)
      if (isAllowed) next()
      else void refuse(reply, 'unauthorized', 'send the key of this server: authorization: Bearer <key>')
    })
    const intake = new BodyIntake({ ...service.bounds, fullStatus: 429 })
    app.removeAllContentTypeParsers()
    // Bodies are read by the routes that want one.
    app.addContentTypeParser('application/json', (_request, _payload, parsed) => parsed(null))
    app.setNotFoundHandler(async (request, reply) => {
      return await refuseUnrouted(
        reply,
        this.knownRoutes.unrouted(request, () => 'GET /openapi.json lists the routes'),
      )
    })
    app.setErrorHandler(async (error, _request, reply) => {
      const sent = replyWithError(reply, error)
      if (reply.statusCode >= 500) onFault?.(MillraceError.from(error, 'internal'))
      return await sent
    })
    probeRoutes(app, () => service.readiness())
    metricsRoute(app, service)
    openApiRoute(app, serveApi, packageVersion())
    rolloutRoutes(app, service, intake)
    requestRoutes(app, service)
    workerRoutes(app, service, intake)
  }

  /** Resolves once it listens. */
  static async open(options: HttpDoorOptions): Promise<HttpDoor> {
    const door = new HttpDoor(options)
    await door.listen(options.port)
    return door
  }
}
