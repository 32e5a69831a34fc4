import { Readable } from 'node:stream'
import type { FastifyInstance } from 'fastify'
import { MillraceError } from '../../errors/index.ts'
import {
  exportSessions,
  sessionDamaged,
  sessionOptionsSchema,
  type ExportSessionsOptions,
  type Gateway,
} from '../../gateway/index.ts'
import { isDamage, type RunReader } from '../../store/index.ts'
import { adminOf, callerOf } from './_callers.ts'
import { ExportTurns } from './_export-turns.ts'
import { exportQuerySchema, rewardSchema, sessionQuerySchema } from './_session-schemas.ts'
import type { BodyIntake } from '../_body-intake.ts'
import { jsonBody } from '../_json-body.ts'
import { parseQuery } from '../_parse-query.ts'
import type { GatewayBounds } from './gateway-bounds.ts'

interface OneSession {
  Params: { id: string }
}

export interface SessionRouteParts {
  readonly gateway: Gateway
  readonly reader: RunReader
  readonly intake: BodyIntake
  readonly bounds: Pick<GatewayBounds, 'maxJsonDepth' | 'maxExports' | 'maxStallMs'>
  readonly publicUrl: string | undefined
  readonly onFault: ((error: MillraceError) => void) | undefined
}

/** Sessions over HTTP: start them, look at them, end them, say what they were worth, take out what they said. */
export function sessionRoutes(app: FastifyInstance, parts: SessionRouteParts): void {
  const { gateway, reader, intake, publicUrl, onFault } = parts
  const { maxJsonDepth: maxDepth } = parts.bounds
  const turns = new ExportTurns(parts.bounds)
  app.post('/v1/sessions', async (request, reply) => {
    const caller = adminOf(request)
    const options = await jsonBody(request.raw, intake, { schema: sessionOptionsSchema, maxDepth })
    const { groupId, sessions } = await gateway.startSessions(caller, options)
    const base = `${publicUrl ?? `${request.protocol}://${request.host}`}/sessions`
    return await reply
      .code(201)
      .send({ groupId, sessions: sessions.map(({ id, key }) => ({ id, key, url: `${base}/${id}` })) })
  })

  app.get('/v1/sessions', async (request, reply) => {
    const caller = adminOf(request)
    const query = parseQuery(sessionQuerySchema, request)
    return await reply.send(gateway.sessions(caller, query))
  })

  app.get<OneSession>('/v1/sessions/:id', async (request, reply) => {
    return await reply.send(await gateway.session(callerOf(request), request.params.id))
  })

  app.post<OneSession>('/v1/sessions/:id/end', async (request, reply) => {
    return await reply.send(await gateway.endSession(callerOf(request), request.params.id))
  })

  app.post<OneSession>('/v1/sessions/:id/rewards', async (request, reply) => {
    const caller = callerOf(request)
    const { id } = request.params
    const said = await jsonBody(request.raw, intake, { schema: rewardSchema, maxDepth })
    const node = await gateway.reward(caller, id, said)
    return await reply.send({ ...(await gateway.session(caller, id)), rewarded: { node, reward: said.reward } })
  })

  app.get('/v1/export', async (request, reply) => {
    const { tenant } = adminOf(request)
    const query = parseQuery(exportQuerySchema, request)
    await turns.begin(reply.raw)
    await gateway.recorded()
    const rows = tellingDamage(reader, { ...query, tenant }, onFault)
    // What can be refused is refused before the first chunk, and so with a status of its own.
    const first = await rows.next().catch((error: unknown) => {
      if (query.session === undefined || !isDamage(error)) throw error
      onFault?.(error)
      throw sessionDamaged(query.session, error)
    })
    const type = query.format === 'binary' ? 'application/octet-stream' : 'application/x-ndjson'
    return await reply.type(type).send(Readable.from(withFirst(first, rows, onFault), { objectMode: false }))
  })
}

/** An export that tells of its first damaged session, and at its end of how many there were: who polls would fill the log. */
async function* tellingDamage(
  reader: RunReader,
  options: ExportSessionsOptions,
  onFault: SessionRouteParts['onFault'],
): AsyncGenerator<Uint8Array, void, void> {
  let damaged = 0
  const onDamaged = (_session: string, error: MillraceError): void => {
    damaged += 1
    if (damaged === 1) onFault?.(error)
  }
  try {
    yield* exportSessions(reader, { ...options, onDamaged })
  } finally {
    if (damaged > 1) onFault?.(manyDamaged(damaged))
  }
}

function manyDamaged(count: number): MillraceError {
  const message = `an export came upon ${count} damaged sessions; its rows of kind "damaged" name them all`
  return new MillraceError('store_failed', message)
}

/** What fails after the first chunk can only cut it off: why, nobody else would say. */
async function* withFirst(
  first: IteratorResult<Uint8Array, unknown>,
  rows: AsyncGenerator<Uint8Array, unknown, void>,
  onFault: SessionRouteParts['onFault'],
): AsyncGenerator<Uint8Array, void, void> {
  await using rest = rows
  const tell = (thrown: unknown): never => {
    onFault?.(MillraceError.from(thrown, 'internal'))
    throw thrown
  }
  for (let next = first; !next.done; next = await rest.next().catch(tell)) yield next.value
}
