import type { FastifyInstance } from 'fastify'
import { z } from 'zod'
import { closedObject } from '../schema/index.ts'
import type { BodyIntake } from './_body-intake.ts'
import { jsonBody } from './_json-body.ts'
import { maxJsonDepth } from './serve-bounds.ts'
import type { RolloutService } from './rollout-service.ts'

export const resizeSchema = closedObject({ count: z.int().min(1).describe('The number of workers from now on.') })

/** Workers over HTTP: how each of them is, how many there are, and fresh ones for all. */
export function workerRoutes(app: FastifyInstance, service: RolloutService, intake: BodyIntake): void {
  const list = (): unknown => ({ workers: service.status().workers })

  app.get('/v1/workers', async (_request, reply) => await reply.send(list()))

  app.put('/v1/workers', async (request, reply) => {
    const { count } = await jsonBody(request.raw, intake, { schema: resizeSchema, maxDepth: maxJsonDepth })
    await service.resizeWorkers(count)
    return await reply.send(list())
  })

  app.post('/v1/workers/restart', async (_request, reply) => {
    await service.restartWorkers()
    return await reply.send(list())
  })
}
