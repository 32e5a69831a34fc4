import type { FastifyInstance } from 'fastify'
import { closedObject } from '../schema/index.ts'
import { refuse } from './_door-error.ts'
import { parseQuery, wantsLines } from './_parse-query.ts'
import { recordFormSchema } from './_request-body.ts'
import { sendResults } from './_send-rollouts.ts'
import type { RolloutService } from './rollout-service.ts'

const querySchema = closedObject({ include: recordFormSchema.default('record') })

/** Requests over HTTP: how far one is, its results, and its end. */
export function requestRoutes(app: FastifyInstance, service: RolloutService): void {
  app.get<{ Params: { id: string } }>('/v1/requests/:id', async (request, reply) => {
    const { id } = request.params
    const { include } = parseQuery(querySchema, request)
    const known = service.request(id)
    if (!known) return refuse(reply, 'not_found', `there is no request ${id}`)
    if (wantsLines(request)) {
      return await sendResults(reply, await service.results(known), { form: include, codec: service.codec })
    }
    const { firstTask, tasks, attempts, isDetached, at } = known
    return await reply.send({
      id,
      at,
      firstTask,
      tasks,
      attempts,
      detached: isDetached,
      rollouts: service.rollouts(known),
    })
  })

  app.delete<{ Params: { id: string } }>('/v1/requests/:id', async (request, reply) => {
    const { id } = request.params
    const known = service.request(id)
    if (!known) return refuse(reply, 'not_found', `there is no request ${id}`)
    const cancelling = service.cancelRequest(known)
    return await reply.code(cancelling > 0 ? 202 : 200).send({ id, cancelling })
  })
}
