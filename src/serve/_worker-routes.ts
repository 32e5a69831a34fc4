import type { FastifyInstance } from 'fastify'
import { z } from 'zod'
import { MillraceError } from '../errors/index.ts'
import { closedObject, describeIssues } from '../schema/index.ts'
import type { RolloutService } from './rollout-service.ts'

const resizeSchema = closedObject({ count: z.int().min(1) })

/** Workers over HTTP: how each of them is, how many there are, and fresh ones for all. */
export function workerRoutes(app: FastifyInstance, service: RolloutService): void {
  const list = (): unknown => ({ workers: service.status().workers })

  app.get('/v1/workers', async (_request, reply) => await reply.send(list()))

  app.put('/v1/workers', async (request, reply) => {
    const checked = resizeSchema.safeParse(request.body)
    if (!checked.success) {
      throw new MillraceError('usage', `the body does not fit: ${describeIssues(checked.error.issues)}`)
    }
    await service.resizeWorkers(checked.data.count)
    return await reply.send(list())
  })

  app.post('/v1/workers/restart', async (_request, reply) => {
    await service.restartWorkers()
    return await reply.send(list())
  })
}
