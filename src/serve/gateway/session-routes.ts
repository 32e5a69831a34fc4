import type { ServerResponse } from 'node:http'
import { Readable } from 'node:stream'
import type { FastifyInstance } from 'fastify'
import { MillraceError } from '../../errors/index.ts'
import { type Gateway, sessionDamaged, sessionViewSchema } from '../../gateway/index.ts'
import { AbortScope, peekFirst, Semaphore } from '../../kit/index.ts'
import { exportQuerySchema, exportRows, type ExportRowsOptions } from '../../rows/index.ts'
import { isDamage, type RunReader } from '../../store/index.ts'
import { type BodyIntake, jsonBody } from '../http/body.ts'
import { clientGone } from '../http/errors.ts'
import { parseQuery } from '../http/routes.ts'
import type { GatewayBounds } from './gateway-config.ts'
import { adminOf, callerOf } from './admission.ts'
import {
  keys,
  rewardedSessionSchema,
  rewardSchema,
  sessionListSchema,
  sessionQuerySchema,
  startedSessionsSchema,
  startSessionsSchema,
} from './session-schemas.ts'

interface OneSession {
  Params: { id: string }
}

interface SessionRouteParts {
  readonly gateway: Gateway
  readonly reader: RunReader
  readonly intake: BodyIntake
  readonly exportTurns: ExportTurns
  readonly bounds: Pick<GatewayBounds, 'maxJsonDepth'>
  readonly publicUrl: string | undefined
  readonly onFault: ((error: MillraceError) => void) | undefined
}

export function sessionRoutes(app: FastifyInstance, parts: SessionRouteParts): void {
  const { gateway, reader, intake, exportTurns, publicUrl, onFault } = parts
  const { maxJsonDepth: maxDepth } = parts.bounds
  const start = {
    summary: 'Starts sessions: one, or a group of them.',
    key: keys.admin,
    body: startSessionsSchema,
    isBodyOptional: true as const,
    replies: { 201: startedSessionsSchema },
  }
  app.post('/v1/sessions', { config: { api: start } }, async (request, reply) => {
    const caller = adminOf(request)
    const options = await jsonBody(request.raw, intake, { schema: startSessionsSchema, maxDepth })
    const { groupId, sessions } = await gateway.startSessions(caller, options)
    const base = `${publicUrl ?? `${request.protocol}://${request.host}`}/sessions`
    return await reply
      .code(201)
      .send({ groupId, sessions: sessions.map(({ id, key }) => ({ id, key, url: `${base}/${id}` })) })
  })

  const list = {
    summary: 'The sessions of the tenant, in the order they were started.',
    key: keys.admin,
    query: sessionQuerySchema,
    replies: { 200: sessionListSchema },
  }
  app.get('/v1/sessions', { config: { api: list } }, async (request, reply) => {
    const caller = adminOf(request)
    const query = parseQuery(sessionQuerySchema, request)
    return await reply.send(gateway.sessions(caller, query))
  })

  const one = {
    summary: 'One session: its state, what it used and what is left.',
    key: keys.session,
    replies: { 200: sessionViewSchema },
  }
  app.get<OneSession>('/v1/sessions/:id', { config: { api: one } }, async (request, reply) => {
    return await reply.send(await gateway.session(callerOf(request), request.params.id))
  })

  const end = {
    summary: 'Ends a session. It accepts no more requests.',
    key: keys.manager,
    replies: { 200: sessionViewSchema },
  }
  app.post<OneSession>('/v1/sessions/:id/end', { config: { api: end } }, async (request, reply) => {
    return await reply.send(await gateway.endSession(callerOf(request), request.params.id))
  })

  const reward = {
    summary: 'Sets the reward of a session, or of one reply in it. A later reward replaces it.',
    key: keys.manager,
    body: rewardSchema,
    replies: { 200: rewardedSessionSchema },
  }
  app.post<OneSession>('/v1/sessions/:id/rewards', { config: { api: reward } }, async (request, reply) => {
    const caller = callerOf(request)
    const { id } = request.params
    const body = await jsonBody(request.raw, intake, { schema: rewardSchema, maxDepth })
    const node = await gateway.reward(caller, id, body)
    return await reply.send({ ...(await gateway.session(caller, id)), rewarded: { node, reward: body.reward } })
  })

  const exported = {
    summary: 'Exports conversations as rows for training: of one session, of one group, or of all.',
    key: keys.admin,
    query: exportQuerySchema,
    replies: { 200: { types: ['application/x-ndjson', 'application/octet-stream'] } },
  }
  app.get('/v1/export', { config: { api: exported } }, async (request, reply) => {
    const { tenant } = adminOf(request)
    const query = parseQuery(exportQuerySchema, request)
    await exportTurns.begin(reply.raw)
    await gateway.recorded()
    // What can be refused is refused before the first chunk, and so with a status of its own.
    const rows = await peekFirst(reportingDamage(reader, { ...query, tenant }, onFault)).catch((error: unknown) => {
      if (query.session === undefined || !isDamage(error)) throw error
      onFault?.(error)
      throw sessionDamaged(query.session, error)
    })
    const type = query.format === 'binary' ? 'application/octet-stream' : 'application/x-ndjson'
    return await reply.type(type).send(Readable.from(reportingFailure(rows, onFault), { objectMode: false }))
  })
}

/** An export that reports its first damaged session, and at its end how many there were: a client that polls would fill the log. */
async function* reportingDamage(
  reader: RunReader,
  options: ExportRowsOptions,
  onFault: SessionRouteParts['onFault'],
): AsyncGenerator<Uint8Array, void, void> {
  let damaged = 0
  const onDamaged = (_session: string, error: MillraceError): void => {
    damaged += 1
    if (damaged === 1) onFault?.(error)
  }
  try {
    yield* exportRows(reader, { ...options, onDamaged })
  } finally {
    const message = `an export found ${damaged} damaged sessions; its rows of kind "damaged" name them all`
    if (damaged > 1) onFault?.(new MillraceError('store_failed', message))
  }
}

/** An export that fails after its first chunk is cut off, and its client is not told why: the log is. */
async function* reportingFailure(
  rows: AsyncIterable<Uint8Array>,
  onFault: SessionRouteParts['onFault'],
): AsyncGenerator<Uint8Array, void, void> {
  try {
    yield* rows
  } catch (error) {
    onFault?.(MillraceError.from(error, 'internal'))
    throw error
  }
}

/** Lets few exports run at once: each holds a session in memory, and has its share of every turn of the loop. The others wait. */
export class ExportTurns {
  readonly #turns: Semaphore
  readonly #maxWaitMs: number

  constructor({ maxExports, maxStallMs }: Pick<GatewayBounds, 'maxExports' | 'maxStallMs'>) {
    this.#turns = new Semaphore(maxExports)
    // While one waits nothing moves on its connection, which then does not last.
    this.#maxWaitMs = maxStallMs / 2
  }

  /** Resolves when it is an export's turn, which is over with its reply, however that ends. */
  async begin(response: ServerResponse): Promise<void> {
    using waiting = new AbortScope(undefined, this.#maxWaitMs, () => this.#full())
    let onClose = (): void => waiting.abort(clientGone())
    response.once('close', () => onClose())
    await this.#turns.acquire(waiting.signal)
    onClose = () => this.#turns.release()
    // Its turn and its end may have come at the same moment.
    if (!waiting.signal.aborted) return
    onClose = () => {}
    this.#turns.release()
    throw waiting.signal.reason
  }

  #full(): MillraceError {
    const message = `${this.#turns.limit} exports are running, which is the limit; try again in a moment`
    return new MillraceError('overloaded', message, { data: { status: 503, retryAfterMs: 1000 } })
  }
}
