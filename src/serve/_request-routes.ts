import type { FastifyInstance } from 'fastify'
import { closedObject } from '../schema/index.ts'
import { refuse } from './_door-error.ts'
import { pageSchemas, parseQuery, wantsLines } from './_parse-query.ts'
import { recordFormSchema, rolloutStateSchema } from './_request-body.ts'
import { sendResults } from './_send-rollouts.ts'
import type { RolloutService } from './rollout-service.ts'

export const requestQuerySchema = closedObject({ include: recordFormSchema.default('record') })
export const requestListQuerySchema = closedObject({
  state: rolloutStateSchema
    .exactOptional()
    .describe('`queued`: no rollout has started. `ended`: all have ended. `running`: any other.'),
  ...pageSchemas,
})

/** Requests over HTTP: a list of them, how far one is, its results, and its end. */
export function requestRoutes(app: FastifyInstance, service: RolloutService): void {
  app.get('/v1/requests', async (request, reply) => {
    return await reply.send(service.listRequests(parseQuery(requestListQuerySchema, request)))
  })

  app.get<{ Params: { id: string } }>('/v1/requests/:id', async (request, reply) => {
    const { id } = request.params
    const { include } = parseQuery(requestQuerySchema, request)
    const known = service.request(id)
    if (!known) return refuse(reply, 'not_found', `there is no request ${id}`)
    if (wantsLines(request)) {
      return await sendResults(reply, await service.results(known), { form: include, codec: service.codec })
    }
    return await reply.send({ ...service.describeRequest(known), rollouts: service.rollouts(known) })
  })

  app.delete<{ Params: { id: string } }>('/v1/requests/:id', async (request, reply) => {
    const { id } = request.params
    const known = service.request(id)
    if (!known) return refuse(reply, 'not_found', `there is no request ${id}`)
    const cancelling = service.cancelRequest(known)
    return await reply.code(cancelling > 0 ? 202 : 200).send({ id, cancelling })
  })
}
