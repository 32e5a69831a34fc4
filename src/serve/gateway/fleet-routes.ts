import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import type { z } from 'zod'
import type { Fleet, FleetAnswer } from '../../gateway/index.ts'
import { type BodyIntake, jsonBody } from '../http/body.ts'
import { backendListSchema, fleetAnswerSchema, orders } from './fleet-schemas.ts'
import type { GatewayBounds } from './gateway-config.ts'
import { keys } from './session-schemas.ts'

interface FleetRouteParts {
  readonly fleet: Fleet
  readonly intake: BodyIntake
  readonly bounds: Pick<GatewayBounds, 'maxJsonDepth'>
  /** Throws unless the request is from somebody who may control what all tenants use. */
  readonly requireOperator: (request: FastifyRequest) => void
}

interface OneBackend {
  Params: { backend: string }
}

interface ForBackends {
  readonly backends?: readonly string[]
}

interface Order<Body extends object> {
  readonly name: string
  readonly summary: string
  readonly bodies: { readonly all: z.ZodType<Body & ForBackends>; readonly one: z.ZodType<Body> }
  readonly isBodyOptional: boolean
  readonly run: (body: Body & ForBackends) => Promise<FleetAnswer>
}

export function fleetRoutes(app: FastifyInstance, { fleet, intake, bounds, requireOperator }: FleetRouteParts): void {
  const list = {
    summary: 'The backends: their models, whether they are paused, the version of their weights.',
    key: keys.admin,
    replies: { 200: backendListSchema },
  }
  app.get('/v1/backends', { config: { api: list } }, async (request, reply) => {
    requireOperator(request)
    return await reply.send({ epoch: fleet.epoch, backends: fleet.list() })
  })

  const order = <Body extends object>(given: Order<Body>): void => {
    const { name, summary, bodies, isBodyOptional, run } = given
    const described = {
      key: keys.admin,
      ...(isBodyOptional && { isBodyOptional: true as const }),
      replies: { 200: fleetAnswerSchema, 502: fleetAnswerSchema },
    }
    const read = <Schema extends z.ZodType>(request: FastifyRequest, schema: Schema): Promise<z.output<Schema>> => {
      requireOperator(request)
      return jsonBody(request.raw, intake, { schema, maxDepth: bounds.maxJsonDepth })
    }
    const answer = (reply: FastifyReply, { ok, ...rest }: FleetAnswer): FastifyReply =>
      reply.code(ok ? 200 : 502).send({ ok, ...rest })
    const all = { ...described, summary: `${summary}: those that are named, or all.`, body: bodies.all }
    app.post(`/v1/backends/${name}`, { config: { api: all } }, async (request, reply) => {
      return await answer(reply, await run(await read(request, bodies.all)))
    })
    const one = { ...described, summary: `${summary}: one of them.`, body: bodies.one }
    app.post<OneBackend>(`/v1/backends/:backend/${name}`, { config: { api: one } }, async (request, reply) => {
      const body = await read(request, bodies.one)
      return await answer(reply, await run({ ...body, backends: [request.params.backend] }))
    })
  }
  order({
    name: 'pause',
    summary: 'Pauses backends',
    bodies: orders.pause,
    isBodyOptional: true,
    run: (options) => fleet.pause(options),
  })
  order({
    name: 'resume',
    summary: 'Ends the pause of backends',
    bodies: orders.resume,
    isBodyOptional: true,
    run: (options) => fleet.resume(options),
  })
  order({
    name: 'version',
    summary: 'Sets the version of the weights of backends',
    bodies: orders.version,
    isBodyOptional: false,
    run: (options) => fleet.setVersion(options),
  })
}
