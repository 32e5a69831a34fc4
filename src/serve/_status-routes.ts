import type { FastifyInstance } from 'fastify'
import type { RolloutService } from './rollout-service.ts'

/** Those that need no key: a probe has none. */
export const openPaths: ReadonlySet<string> = new Set(['/health', '/ready'])

/** Whether the process lives, whether it would run a rollout, and how it is doing. */
export function statusRoutes(app: FastifyInstance, service: RolloutService): void {
  app.get('/health', async (_request, reply) => await reply.send({ status: 'ok' }))

  app.get('/ready', async (_request, reply) => {
    const readiness = service.readiness()
    if (readiness.isReady) return await reply.send({ status: 'ready' })
    return await reply.code(503).send({ status: 'not ready', why: readiness.why })
  })

  app.get('/metrics', async (_request, reply) => {
    const { metrics } = service
    return await reply.type(metrics.contentType).send(await metrics.text())
  })
}
