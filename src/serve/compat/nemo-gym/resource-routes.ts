import { randomUUID } from 'node:crypto'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { MillraceError } from '../../../errors/index.ts'
import { AbortScope, jsonOrText } from '../../../kit/index.ts'
import type { Conversation, SessionScore } from '../../../rollout/index.ts'
import { textOf } from '../../../schema/index.ts'
import type { ToolResult } from '../../../tools/index.ts'
import { clientGone } from '../../http/errors.ts'
import { jsonType, sendStream } from '../../rollouts/send-rollouts.ts'
import type { SessionProgress } from '../../rollouts/served-sessions.ts'
import { resultFields } from './run-reply.ts'
import { isRowOf, rowTask } from './row-task.ts'
import { readSeededRow, readVerifiedRow, type SeededRow } from './session-row.ts'
import { missing, notFoundReply, refusal, requireUtf8 } from '../fastapi/wire-errors.ts'
import { type GymAgent, sendWire, sessionOf } from './wire-scope.ts'

/** What is larger is read on a thread: so much takes about a millisecond. */
const maxInlineRow = 64 * 1024

interface ToolPath {
  Params: { tool: string }
}

/** An environment as a resources server of NeMo Gym: an agent elsewhere seeds a session, calls tools by their path, and verifies. */
export function resourceRoutes(scope: FastifyInstance, { base, name, agents, intake, cookies }: GymAgent): void {
  const service = agents.get(name)
  const { environment, sessions, codec } = service
  const config = { gymCookies: cookies }

  scope.post(`${base}/seed_session`, { config }, async (request, reply) => {
    using body = await intake.read(request.raw)
    const row = body.length <= maxInlineRow ? readSeededRow(body.bytes) : await codec.seededRow(body.parts)
    using gone = abortWhenGone(reply)
    const { id } = sessionOf(request)
    const before = sessions.progress(id)
    if (before && !isReplaceable(before, row)) throw underWay()
    await sessions.open(id, await rowTask(service, row), gone.signal)
    return await sendJson(reply, '{}')
  })

  scope.post(`${base}/verify`, { config }, async (request, reply) => {
    using body = await intake.read(request.raw)
    const isLong = body.length > maxInlineRow
    const { row, text } = isLong
      ? await codec.verifiedRow(body.parts)
      : { row: readVerifiedRow(body.bytes), text: body.bytes }
    using gone = abortWhenGone(reply)
    const { id } = sessionOf(request)
    const { conversation, names } = row
    const { outcome } = conversation
    const send = (score: SessionScore) => sendVerified(reply, text, resultFields({ ...score, outcome }, names))
    const seeded = sessions.progress(id)
    if (seeded && isRowOf(seeded, row)) return await send(await sessions.score(id, conversation, gone.signal))
    const task = await rowTask(service, row)
    // Beside the session of the cookie, which may be under way with another row.
    const ownId = randomUUID()
    await sessions.open(ownId, { ...task, place: task.place ?? id }, gone.signal)
    try {
      const score = await sessions.score(ownId, conversation, gone.signal)
      if (score.hasReadState && hasCalledTools(conversation)) throw withoutState(environment.name)
      return await send(score)
    } finally {
      await sessions.end(ownId)
    }
  })

  scope.post<ToolPath>(`${base}/:tool`, { config }, async (request, reply) => {
    using body = await intake.read(request.raw)
    using gone = abortWhenGone(reply)
    const { id } = sessionOf(request)
    const { tool } = request.params
    if (!sessions.has(id) && !Object.hasOwn(environment.tools ?? {}, tool) && !environment.mcpServers) {
      return await sendWire(reply, notFoundReply())
    }
    requireUtf8(body.bytes)
    const result = await sessions.call(id, { name: tool, arguments: body.bytes.toString(), signal: gone.signal })
    // A tool that takes nothing may be sent nothing.
    if (body.length === 0 && result.record.status === 'bad_arguments') throw missing(['body'])
    return await sendResult(reply, result)
  })

  scope.post<ToolPath>(`${base}/:tool/`, { config }, async ({ url }: FastifyRequest<ToolPath>, reply) => {
    return await reply.redirect(url.replace(/\/(?=\?|$)/, ''), 307)
  })
}

/** Aborts when the client has gone: what it asked for is not worth its time any more. */
function abortWhenGone({ raw }: FastifyReply): AbortScope {
  const scope = new AbortScope(undefined)
  const leave = (): void => void (raw.writableFinished || scope.abort(clientGone()))
  // It may have gone while its body was being read.
  if (raw.destroyed) leave()
  else raw.once('close', leave)
  return scope
}

async function sendJson(reply: FastifyReply, text: string): Promise<FastifyReply> {
  return await reply.type(jsonType).send(text)
}

/** What a tool says is the body: agents show it to their policy as it is, whatever the status. */
async function sendResult(reply: FastifyReply, { message, record }: ToolResult): Promise<FastifyReply> {
  const text = textOf(message)
  switch (record.status) {
    case 'ok':
      return await reply.type(typeof jsonOrText(text) === 'string' ? 'text/plain; charset=utf-8' : jsonType).send(text)
    case 'unknown_tool':
      return await sendWire(reply, notFoundReply())
    case 'bad_arguments':
      throw refusal({ type: 'value_error', loc: ['body'], msg: text, input: null })
    case 'failed':
    case 'timeout':
  }
  return await reply.code(500).type(jsonType).send(JSON.stringify(text))
}

/** A policy may call a tool `seed_session`: it must not get another state, or another task, for the conversation that it has begun. */
function isReplaceable(session: SessionProgress, row: SeededRow): boolean {
  return session.stage === 'scored' || (session.stage === 'seeded' && isRowOf(session, row))
}

function underWay(): MillraceError {
  const message =
    'this session is under way: POST /verify before it is seeded again, or seed another one, without the cookie'
  return new MillraceError('usage', message, { data: { status: 409 } })
}

function hasCalledTools({ messages }: Conversation): boolean {
  return messages.some(({ role }) => role === 'tool')
}

function withoutState(environment: string): MillraceError {
  const message = `a reward of ${environment} reads the state, and the session whose tools made it has ended, or was never seeded with this row: POST /seed_session, call the tools, and verify with the same cookie`
  return new MillraceError('usage', message, { data: { status: 409 } })
}

const closeBrace = 0x7d

/** The row as it was sent, with the reward: numbers that JavaScript would change stay as they are. */
async function sendVerified(reply: FastifyReply, row: Uint8Array, fields: string): Promise<void> {
  // After it there is only white space.
  const open = row.subarray(0, row.lastIndexOf(closeBrace))
  const rest = `,${fields}}`
  if (row.length <= maxInlineRow) {
    await reply.type(jsonType).send(Buffer.concat([open, Buffer.from(rest)]))
    return
  }
  reply.hijack()
  await sendStream(reply.raw, { 'content-type': jsonType }, piecesOf(open, rest))
}

async function* piecesOf(...pieces: readonly (string | Uint8Array)[]): AsyncGenerator<string | Uint8Array, void, void> {
  yield* pieces
}
