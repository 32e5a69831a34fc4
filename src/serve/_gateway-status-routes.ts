import type { FastifyInstance } from 'fastify'
import type { Gateway } from '../gateway/index.ts'
import type { MetricsHub } from '../telemetry/index.ts'
import { adminOf } from './_gateway-callers.ts'
import { modelListRoutes } from './_gateway-model-list.ts'
import { gatewayOpenApi } from './_gateway-openapi.ts'
import type { Readiness } from './_readiness.ts'

/** What a probe asks, which has no key. */
export function probeRoutes(app: FastifyInstance, readiness: () => Promise<Readiness>): void {
  app.get('/health', async (_request, reply) => await reply.send({ status: 'ok' }))

  app.get('/ready', async (_request, reply) => {
    const found = await readiness()
    if (found.isReady) return await reply.send({ status: 'ready' })
    return await reply.code(503).send({ status: 'not ready', why: found.why })
  })
}

/** What there is, and how it is doing. */
export function statusRoutes(
  app: FastifyInstance,
  { gateway, metrics, version }: { readonly gateway: Gateway; readonly metrics: MetricsHub; readonly version: string },
): void {
  app.get('/metrics', async (request, reply) => {
    adminOf(request)
    return await reply.type(metrics.contentType).send(await metrics.text())
  })

  app.get('/openapi.json', async (_request, reply) => await reply.send(gatewayOpenApi(version)))

  modelListRoutes(app, gateway)
}
