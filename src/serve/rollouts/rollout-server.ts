import type { IncomingMessage } from 'node:http'
import type { FastifyInstance } from 'fastify'
import { z } from 'zod'
import { MillraceError } from '../../errors/index.ts'
import { packageVersion, Secret } from '../../kit/index.ts'
import type { GroupOptions } from '../../rows/index.ts'
import { closedObject, outcomeNames } from '../../schema/index.ts'
import { maxJsonDepth, type RecordForm } from '../codec/rollout-json.ts'
import { gymRoutes } from '../compat/nemo-gym/gym-routes.ts'
import type { StrayRequests } from '../compat/nemo-gym/stray-requests.ts'
import { type GymOptions, refuseOnGymWire } from '../compat/nemo-gym/wire-scope.ts'
import { BodyIntake, jsonBody } from '../http/body.ts'
import { refuse, replyWithError } from '../http/errors.ts'
import { namedSchemas } from '../http/openapi.ts'
import { pageSchemas, parseQuery, refuseUnrouted, wantsLines } from '../http/routes.ts'
import { HttpServer, keysIn, requireAccessKey } from '../http/server.ts'
import { healthRoutes, openPaths, readyRoute, statusRoutes } from '../http/status-routes.ts'
import { rolloutCount } from '../requests/known-request.ts'
import {
  advantageSchema,
  parseRolloutRequest,
  recordFormSchema,
  replyFormSchema,
  type ReplyOptions,
  rolloutBodySchema,
  rolloutStateSchema,
} from '../requests/request-body.ts'
import { key, lines, recordSchema, replies, serveInfo } from './reply-schemas.ts'
import type { RolloutService } from './rollout-service.ts'
import { responseRoutes } from './response-routes.ts'
import { ServedAgents } from './served-agents.ts'
import { requestHeaders, rowsType, sendResult, sendResults, sendRollout, sendRows } from './send-rollouts.ts'

export interface RolloutServerOptions {
  readonly service: RolloutService | ServedAgents
  readonly host?: string
  readonly port: number
  /** Asked for as a bearer token by everything but `/health` and `/ready`. */
  readonly accessKey?: string
  /** The agents also speak NeMo Gym's protocol. */
  readonly nemoGym?: GymOptions
  readonly onFault?: (error: MillraceError) => void
}

/** The way to the services of a port over HTTP. It has no logic of its own: it parses, calls and encodes. */
export class RolloutServer extends HttpServer {
  private constructor(options: RolloutServerOptions) {
    const { service, accessKey, nemoGym, onFault, host = '127.0.0.1' } = options
    requireAccessKey(host, accessKey)
    let strays: StrayRequests | undefined
    super(host, {
      isKeyless: accessKey === undefined,
      refuseUnreadable: (request, reply) => strays?.refuseUnrouted(request, reply),
    })
    const { app } = this
    const agents = service instanceof ServedAgents ? service : ServedAgents.of(service)
    const serverKey = accessKey === undefined ? undefined : new Secret(accessKey)
    app.addHook('onRequest', (request, reply, next) => {
      const { bearer = '' } = keysIn(request.headers)
      const isAllowed =
        !serverKey || openPaths.has(request.routeOptions.url ?? '') || serverKey.equals(new Secret(bearer))
      if (isAllowed) next()
      else void refuse(reply, 'unauthorized', 'send the key of this server: authorization: Bearer <key>')
    })
    const intake = new BodyIntake({ ...agents.get().bounds, fullStatus: 429 })
    app.removeAllContentTypeParsers()
    // Bodies are read by the routes that want one.
    app.addContentTypeParser('application/json', (_request, _payload, parsed) => parsed(null))
    app.setNotFoundHandler(async (request, reply) => {
      const unrouted = this.knownRoutes.unrouted(request, () => 'GET /openapi.json lists the routes')
      return await (refuseOnGymWire(request, reply, unrouted) ??
        strays?.refuseUnrouted(request, reply, unrouted.beside) ??
        refuseUnrouted(reply, unrouted))
    })
    app.setErrorHandler(async (error, _request, reply) => {
      const sent = replyWithError(reply, error)
      if (reply.statusCode >= 500) onFault?.(MillraceError.from(error, 'internal'))
      return await sent
    })
    healthRoutes(app, '/health')
    readyRoute(app, 'Whether a rollout that is sent now would run.', () => agents.readiness())
    statusRoutes(app, {
      metrics: agents.metrics,
      metricsKey: key,
      documentKey: key,
      routes: this.knownRoutes,
      info: serveInfo,
      version: packageVersion(),
    })
    for (const base of ['', '/agents/:agent'] as const) {
      rolloutRoutes(app, { base, agents, intake })
      requestRoutes(app, { base, agents, intake })
      workerRoutes(app, { base, agents, intake })
      // NeMo Gym's agents have these routes themselves, with its cookies and errors.
      if (!nemoGym) responseRoutes(app, { base, agents, intake, onFault })
    }
    if (nemoGym) strays = gymRoutes(app, { ...nemoGym, agents, intake, onFault })
  }

  static async open(options: RolloutServerOptions): Promise<RolloutServer> {
    const httpServer = new RolloutServer(options)
    await httpServer.listen(options.port)
    return httpServer
  }
}

const rolloutQuerySchema = closedObject({ include: recordFormSchema.default('record') })
const rolloutListQuerySchema = closedObject({
  request: z.string().exactOptional().describe('The rollouts of this request only.'),
  state: rolloutStateSchema.exactOptional().describe('The rollouts in this state only.'),
  outcome: z.enum(outcomeNames).exactOptional().describe('The ended rollouts with this outcome only.'),
  ...pageSchemas,
})

interface RouteParts {
  /** What paths begin with; `:agent` in it is the name of a service. */
  readonly base: '' | '/agents/:agent'
  readonly agents: ServedAgents
  readonly intake: BodyIntake
}

interface OfAgent {
  Params: { agent?: string }
}

interface OneOfAgent {
  Params: { agent?: string; id: string }
}

function rolloutRoutes(app: FastifyInstance, { base, agents, intake }: RouteParts): void {
  /** Its body is held until then: its tasks are counted with those that wait from then on. */
  const accept = async (service: RolloutService, request: IncomingMessage) => {
    using body = await intake.read(request)
    const { request: asked, reply } = await parseRolloutRequest(body, service.codec)
    // Before anything is accepted: the reply may be refused.
    const written = writtenAs(reply, service)
    return { ...written, isDetached: asked.isDetached === true, submission: await service.submit(asked) }
  }

  const run = {
    summary:
      'Runs rollouts of one task or many. One rollout is answered as JSON, several as a line of JSON each, as they end; or rows for training, by groups.',
    key,
    body: rolloutBodySchema,
    replies: { 200: { json: recordSchema, types: [lines, rowsType] }, 202: replies.accepted },
  }
  app.post<OfAgent>(`${base}/v1/rollouts`, { config: { api: run } }, async (request, reply) => {
    const service = agents.get(request.params.agent)
    const { codec } = service
    const { form, rows, isDetached, submission } = await accept(service, request.raw)
    if (isDetached) {
      const { id, firstTask, tasks, attempts } = submission.request
      await submission.results.return()
      return await reply
        .code(202)
        .headers(requestHeaders(submission.request))
        .send({ request: id, firstTask, tasks, attempts })
    }
    if (rows) return await sendRows(reply, submission, { rows, codec })
    const isOne = rolloutCount(submission.request) === 1 && !wantsLines(request)
    return await (isOne ? sendResult : sendResults)(reply, submission, { form, codec })
  })

  const one = {
    summary: 'One rollout: its state, or its record once it has ended.',
    key,
    query: rolloutQuerySchema,
    replies: { 200: replies.rolloutOrState },
  }
  app.get<OneOfAgent>(`${base}/v1/rollouts/:id`, { config: { api: one } }, async (request, reply) => {
    const { id, agent } = request.params
    const service = agents.get(agent)
    const { codec } = service
    const { include } = parseQuery(rolloutQuerySchema, request)
    const state = service.state(id)
    if (state === undefined) return refuse(reply, 'not_found', `there is no rollout ${id}`)
    if (state !== 'ended') return await reply.send({ id, state })
    return await sendRollout(reply, { id }, { form: include, codec })
  })

  const list = {
    summary: 'The rollouts, newest first.',
    key,
    query: rolloutListQuerySchema,
    replies: { 200: replies.rolloutList },
  }
  app.get<OfAgent>(`${base}/v1/rollouts`, { config: { api: list } }, async (request, reply) => {
    const { cursor, limit, ...filter } = parseQuery(rolloutListQuerySchema, request)
    return await reply.send(await agents.get(request.params.agent).list(filter, { cursor, limit }))
  })

  const cancel = {
    summary: 'Cancels a rollout.',
    key,
    replies: { 200: replies.cancelledRollout, 202: replies.cancelledRollout },
  }
  app.delete<OneOfAgent>(`${base}/v1/rollouts/:id`, { config: { api: cancel } }, async (request, reply) => {
    const { id, agent } = request.params
    const service = agents.get(agent)
    const state = service.state(id)
    if (state === undefined) return refuse(reply, 'not_found', `there is no rollout ${id}`)
    const isCancelling = service.cancel(id)
    return await reply.code(isCancelling ? 202 : 200).send({ id, state, cancelling: isCancelling })
  })
}

/** How results are written: as records in this form, or as rows of groups. */
interface Written {
  readonly form: RecordForm
  readonly rows?: Omit<GroupOptions, 'task'>
}

function writtenAs({ include = 'record', advantage }: ReplyOptions, { capturesTokens }: RolloutService): Written {
  if (include !== 'rows' && include !== 'interactions') {
    if (advantage === undefined) return { form: include }
    throw new MillraceError('usage', 'advantage is a field of rows; send "include": "rows" with it')
  }
  if (!capturesTokens) {
    throw new MillraceError('usage', `include=${include} needs token ids; start the server with --tokens (tokens)`)
  }
  const rows = include === 'rows' ? 'merged' : include
  return { form: 'record', rows: { rows, advantage: advantage ?? 'none' } }
}

const requestQuerySchema = closedObject({
  include: replyFormSchema.exactOptional(),
  advantage: advantageSchema.exactOptional(),
})
const requestListQuerySchema = closedObject({
  state: rolloutStateSchema
    .exactOptional()
    .describe('`queued`: no rollout has started. `ended`: all have ended. `running`: any other.'),
  ...pageSchemas,
})

function requestRoutes(app: FastifyInstance, { base, agents }: RouteParts): void {
  const list = {
    summary: 'The requests, newest first, with the number of their rollouts by state and outcome.',
    key,
    query: requestListQuerySchema,
    replies: { 200: replies.requestList },
  }
  app.get<OfAgent>(`${base}/v1/requests`, { config: { api: list } }, async (request, reply) => {
    return await reply.send(agents.get(request.params.agent).listRequests(parseQuery(requestListQuerySchema, request)))
  })

  const one = {
    summary:
      'One request with the state of its rollouts; its results as lines if `accept` asks for them, or as rows if `include` does.',
    key,
    query: requestQuerySchema,
    replies: { 200: { json: replies.request, types: [lines, rowsType] } },
  }
  app.get<OneOfAgent>(`${base}/v1/requests/:id`, { config: { api: one } }, async (request, reply) => {
    const { id, agent } = request.params
    const service = agents.get(agent)
    const { form, rows } = writtenAs(parseQuery(requestQuerySchema, request), service)
    const { codec } = service
    const known = service.request(id)
    if (!known) return refuse(reply, 'not_found', `there is no request ${id}`)
    if (rows) return await sendRows(reply, await service.results(known), { rows, codec })
    if (wantsLines(request)) return await sendResults(reply, await service.results(known), { form, codec })
    return await reply.send({ ...service.describeRequest(known), rollouts: service.rollouts(known) })
  })

  const cancel = {
    summary: 'Cancels the rollouts of a request that have not ended.',
    key,
    replies: { 200: replies.cancelledRequest, 202: replies.cancelledRequest },
  }
  app.delete<OneOfAgent>(`${base}/v1/requests/:id`, { config: { api: cancel } }, async (request, reply) => {
    const { id, agent } = request.params
    const service = agents.get(agent)
    const known = service.request(id)
    if (!known) return refuse(reply, 'not_found', `there is no request ${id}`)
    const cancelling = service.cancelRequest(known)
    return await reply.code(cancelling > 0 ? 202 : 200).send({ id, cancelling })
  })
}

const resizeSchema = closedObject({
  count: z.int().min(1).describe('The number of workers from now on.'),
}).register(namedSchemas, { id: 'ResizeWorkers' })

function workerRoutes(app: FastifyInstance, { base, agents, intake }: RouteParts): void {
  const list = (service: RolloutService): unknown => ({ workers: service.status().workers })
  const described = { key, replies: { 200: replies.workers } }

  const all = { ...described, summary: 'The workers.' }
  app.get<OfAgent>(`${base}/v1/workers`, { config: { api: all } }, async (request, reply) => {
    return await reply.send(list(agents.get(request.params.agent)))
  })

  const resize = { ...described, summary: 'Changes the number of workers.', body: resizeSchema }
  app.put<OfAgent>(`${base}/v1/workers`, { config: { api: resize } }, async (request, reply) => {
    const service = agents.get(request.params.agent)
    const { count } = await jsonBody(request.raw, intake, { schema: resizeSchema, maxDepth: maxJsonDepth })
    await service.resizeWorkers(count)
    return await reply.send(list(service))
  })

  const restart = { ...described, summary: 'Replaces each worker with a fresh one, one after another.' }
  app.post<OfAgent>(`${base}/v1/workers/restart`, { config: { api: restart } }, async (request, reply) => {
    const service = agents.get(request.params.agent)
    await service.restartWorkers()
    return await reply.send(list(service))
  })
}
