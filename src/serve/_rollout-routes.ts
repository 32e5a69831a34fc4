import type { IncomingMessage } from 'node:http'
import type { FastifyInstance } from 'fastify'
import { z } from 'zod'
import { closedObject, outcomeNames } from '../schema/index.ts'
import type { BodyIntake } from './_body-intake.ts'
import { refuse } from './_door-error.ts'
import { pageSchemas, parseQuery, wantsLines } from './_parse-query.ts'
import type { Submission } from './_request-intake.ts'
import { postedRequest, recordFormSchema, rolloutStateSchema, type PostedRequest } from './_request-body.ts'
import { requestHeaders, sendResult, sendResults, sendRollout } from './_send-rollouts.ts'
import { rolloutCount } from './known-request.ts'
import type { RolloutService } from './rollout-service.ts'

export const rolloutQuerySchema = closedObject({ include: recordFormSchema.default('record') })
export const rolloutListQuerySchema = closedObject({
  request: z.string().exactOptional().describe('The rollouts of this request only.'),
  state: rolloutStateSchema.exactOptional().describe('The rollouts in this state only.'),
  outcome: z.enum(outcomeNames).exactOptional().describe('The ended rollouts with this outcome only.'),
  ...pageSchemas,
})

/** Rollouts over HTTP: ask for them, look at them, list them, cancel them. */
export function rolloutRoutes(app: FastifyInstance, service: RolloutService, intake: BodyIntake): void {
  const { codec } = service

  /** Its body is held until then: its tasks are counted with those that wait from then on. */
  const accept = async (request: IncomingMessage): Promise<PostedRequest & { readonly submission: Submission }> => {
    using body = await intake.whole(request)
    const posted = await postedRequest(body, codec)
    return { ...posted, submission: await service.submit(posted.request) }
  }

  app.post('/v1/rollouts', async (request, reply) => {
    const { request: asked, form, submission } = await accept(request.raw)
    if (asked.isDetached) {
      const { id, firstTask, tasks, attempts } = submission.request
      await submission.results.return()
      return await reply
        .code(202)
        .headers(requestHeaders(submission.request))
        .send({ request: id, firstTask, tasks, attempts })
    }
    const isOne = rolloutCount(submission.request) === 1 && !wantsLines(request)
    return await (isOne ? sendResult : sendResults)(reply, submission, { form, codec })
  })

  app.get<{ Params: { id: string } }>('/v1/rollouts/:id', async (request, reply) => {
    const { id } = request.params
    const { include } = parseQuery(rolloutQuerySchema, request)
    const state = service.state(id)
    if (state === undefined) return refuse(reply, 'not_found', `there is no rollout ${id}`)
    if (state !== 'ended') return await reply.send({ id, state })
    return await sendRollout(reply, { id }, { form: include, codec })
  })

  app.get('/v1/rollouts', async (request, reply) => {
    const { cursor, limit, ...filter } = parseQuery(rolloutListQuerySchema, request)
    return await reply.send(await service.list(filter, { cursor, limit }))
  })

  app.delete<{ Params: { id: string } }>('/v1/rollouts/:id', async (request, reply) => {
    const { id } = request.params
    const state = service.state(id)
    if (state === undefined) return refuse(reply, 'not_found', `there is no rollout ${id}`)
    const isCancelling = service.cancel(id)
    return await reply.code(isCancelling ? 202 : 200).send({ id, state, cancelling: isCancelling })
  })
}
