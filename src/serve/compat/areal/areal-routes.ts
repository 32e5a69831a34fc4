import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import type { z } from 'zod'
import { MillraceError } from '../../../errors/index.ts'
import type { BodyIntake } from '../../http/body.ts'
import { isServerFault } from '../../http/errors.ts'
import type { ExportTurns } from '../../gateway/session-routes.ts'
import type { ArealWire } from './areal-wire.ts'
import { dataRoutes } from './data-routes.ts'
import { bodyOf } from './json-body.ts'
import { describedAs } from './route-config.ts'
import { arealError, refusal } from './wire-errors.ts'
import { exportSchema, parsedBody, registerModelSchema, setRewardSchema, startSessionSchema } from './wire-schemas.ts'

export interface ArealRouteParts {
  readonly wire: ArealWire
  readonly intake: BodyIntake
  readonly exportTurns: ExportTurns
  readonly onFault: ((error: MillraceError) => void) | undefined
}

const adminKey = 'Needs an admin key.'
const anyKey = 'A session’s own key is accepted.'

/** AReaL's gateway and data proxies, but for requests to models. Every route needs a key. */
export function arealRoutes(app: FastifyInstance, parts: ArealRouteParts): void {
  const { wire, intake, onFault } = parts
  // Bodies are read by the routes that want one.
  app.addContentTypeParser('*', (_request, _payload, parsed) => parsed(null))
  app.setErrorHandler(async (thrown, _request, reply) => {
    const { status, headers, body } = arealError(thrown, wire.rule)
    const error = MillraceError.from(thrown, 'internal')
    if (isServerFault(error, status) && error.data['field'] === undefined) onFault?.(error)
    return await reply.code(status).headers(headers).send(body)
  })
  const read = async <Schema extends z.ZodType>({ raw }: FastifyRequest, schema: Schema): Promise<z.output<Schema>> => {
    using body = await intake.read(raw)
    return parsedBody(body.bytes, schema)
  }

  app.post('/rl/start_session', describedAs('Starts sessions as AReaL does.', adminKey), async (request, reply) => {
    const admin = wire.admin(request.headers)
    const { task_id: task, group_size: groupSize, api_key: key } = await read(request, startSessionSchema)
    const { groupId, sessions } = await wire.sessions.start(admin, { task, groupSize, key: key || undefined })
    const credentials = sessions.map(({ id, key: own }) => ({ session_id: id, session_api_key: own }))
    return await reply.code(201).send({ group_id: groupId, sessions: credentials })
  })

  app.post('/rl/set_reward', describedAs('Rewards a reply as AReaL does.', anyKey), async (request, reply) => {
    const caller = wire.caller(request.headers)
    const { reward, interaction_id: interaction } = await read(request, setRewardSchema)
    const rewarded = await wire.sessions.reward(caller, { reward, interaction: interaction ?? undefined })
    return await reply.send({
      message: 'success',
      interaction_count: rewarded.replies,
      session_id: rewarded.session,
      trajectory_id: rewarded.trajectory,
      trajectory_ready: true,
      ready_transition: rewarded.isNew,
    })
  })

  const exported = describedAs('Exports the trajectories of sessions as AReaL does.', adminKey)
  app.post('/export_trajectories', exported, async (request, reply) => exportTrajectories(parts, request, reply))

  app.get('/models', describedAs('The names of the models.', adminKey), async (request, reply) => {
    wire.admin(request.headers)
    return await reply.send({ models: wire.models })
  })

  const registered = describedAs('Announces the name of a model.', adminKey)
  app.post('/register_model', registered, async (request, reply) => {
    wire.admin(request.headers)
    const { model, url, data_proxy_addrs: given } = await read(request, registerModelSchema)
    if (!model) throw refusal('model is required', { status: 400, field: 'error' })
    if (url) {
      const message =
        'a model with a url of its own is configured where the gateway is started: --backend, or models of the file'
      throw refusal(message, { status: 501, field: 'error' })
    }
    if (!wire.register(model)) throw refusal('No registered workers', { status: 503, field: 'error' })
    const addresses = given && given.length > 0 ? given : [`${request.protocol}://${request.host}`]
    return await reply.send({ status: 'ok', model, data_proxy_addrs: addresses })
  })

  dataRoutes(app, { wire, intake })
}

async function exportTrajectories(
  { wire, intake, exportTurns, onFault }: ArealRouteParts,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<FastifyReply> {
  const admin = wire.admin(request.headers)
  const asked = await exportRequest(request, intake)
  await exportTurns.begin(reply.raw)
  const address = wire.tensorAddress(admin.tenant, request.host)
  const { pieces, onDelivered } = await wire.exports.export(admin, asked, { address })
  // A client that has left before has nothing: it may ask again.
  reply.raw.once('finish', () => {
    const ending = onDelivered().catch((error: unknown) => onFault?.(MillraceError.from(error, 'internal')))
    wire.afterDelivery(ending)
  })
  return await reply.type('application/json').send(bodyOf(pieces))
}

interface DetailEntry {
  readonly type: string
  readonly loc: readonly (string | number)[]
}

/** The gateway of AReaL looks into this body itself, and has words of its own for some faults. */
async function exportRequest({ raw }: FastifyRequest, intake: BodyIntake): Promise<z.output<typeof exportSchema>> {
  using body = await intake.read(raw)
  try {
    const request = parsedBody(body.bytes, exportSchema)
    if (request.session_ids.length > 0) return request
  } catch (error) {
    const { detail } = MillraceError.from(error, 'internal').data
    const [entry] = typeof detail === 'string' ? (JSON.parse(detail) as readonly DetailEntry[]) : []
    if (entry?.type === 'json_invalid') throw refusal('Invalid JSON body', { status: 400, field: 'error' })
    if (entry?.type !== 'missing' || entry.loc.at(-1) !== 'session_ids') throw error
  }
  throw refusal('session_ids is required', { status: 400, field: 'error' })
}
