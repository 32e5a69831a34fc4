import type { FastifyInstance } from 'fastify'
import type { RolloutService } from './rollout-service.ts'

/** How the server is doing. */
export function metricsRoute(app: FastifyInstance, { metrics }: RolloutService): void {
  app.get('/metrics', async (_request, reply) => await reply.type(metrics.contentType).send(await metrics.text()))
}
