import type { FastifyInstance } from 'fastify'
import type { MetricsHub } from '../../telemetry/index.ts'
import { adminOf } from './_callers.ts'
import { gatewayOpenApi } from './_openapi.ts'
import type { Readiness } from '../_readiness.ts'

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
  { metrics, version }: { readonly metrics: MetricsHub; readonly version: string },
): void {
  app.get('/metrics', async (request, reply) => {
    adminOf(request)
    return await reply.type(metrics.contentType).send(await metrics.text())
  })

  // Made when it is first asked for, and the same from then on.
  let openApi: string | undefined
  app.get('/openapi.json', async (_request, reply) => {
    openApi ??= JSON.stringify(gatewayOpenApi(version))
    return await reply.type('application/json').send(openApi)
  })
}
