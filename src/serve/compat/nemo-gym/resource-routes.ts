import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { responsesServer } from '../../../apis/index.ts'
import { MillraceError } from '../../../errors/index.ts'
import { AbortScope, jsonOrText, isJsonObject } from '../../../kit/index.ts'
import type { Conversation, SessionScore } from '../../../rollout/index.ts'
import { type JsonObject, type Message, textOf, type Outcome } from '../../../schema/index.ts'
import type { ToolResult } from '../../../tools/index.ts'
import { jsonType } from '../../rollouts/send-rollouts.ts'
import { resultFields } from './run-reply.ts'
import { rowTask } from './row-task.ts'
import { missing, notFoundReply, plainBody, refusal } from './wire-errors.ts'
import { type GymAgent, sendWire, sessionOf } from './wire-scope.ts'

interface ToolPath {
  Params: { tool: string }
}

/** An environment as a resources server of NeMo Gym: an agent elsewhere seeds a session, calls tools by their path, and verifies. */
export function resourceRoutes(scope: FastifyInstance, { base, name, agents, intake, cookies }: GymAgent): void {
  const service = agents.get(name)
  const { environment } = service
  const sessions = service.sessions
  const config = { gymCookies: cookies }

  scope.post(`${base}/seed_session`, { config }, async (request, reply) => {
    using body = await intake.read(request.raw)
    using gone = abortWhenGone(reply)
    const { id } = sessionOf(request)
    await sessions.open(id, await rowTask(service, plainBody(body.bytes)), gone.signal)
    return await sendJson(reply, '{}')
  })

  scope.post(`${base}/verify`, { config }, async (request, reply) => {
    using body = await intake.read(request.raw)
    using gone = abortWhenGone(reply)
    const { id } = sessionOf(request)
    const row = plainBody(body.bytes)
    const conversation = conversationOf(row)
    const { outcome } = conversation
    const send = (score: SessionScore) => sendJson(reply, verified(body.bytes, row, { ...score, outcome }))
    if (sessions.has(id)) return await send(await sessions.score(id, conversation, gone.signal))
    await sessions.open(id, await rowTask(service, row), gone.signal)
    try {
      const score = await sessions.score(id, conversation, gone.signal)
      if (score.hasReadState && hasCalledTools(conversation)) throw withoutState(environment.name)
      return await send(score)
    } finally {
      await sessions.end(id)
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
    const result = await sessions.call(id, { name: tool, arguments: body.bytes.toString(), signal: gone.signal })
    return await sendResult(reply, result)
  })

  scope.post<ToolPath>(`${base}/:tool/`, { config }, async ({ url }: FastifyRequest<ToolPath>, reply) => {
    return await reply.redirect(url.replace(/\/(?=\?|$)/, ''), 307)
  })
}

/** Aborts when the client has gone: what it asked for is not worth its time any more. */
function abortWhenGone({ raw }: FastifyReply): AbortScope {
  const scope = new AbortScope(undefined)
  raw.once('close', () => {
    if (!raw.writableFinished) scope.abort(new MillraceError('cancelled', 'the client has gone'))
  })
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

/** The conversation that a verify request describes: what the row gave, and then the output of the response. */
function conversationOf(row: JsonObject): Conversation {
  const { responses_create_params: params, response } = row
  if (!isJsonObject(params)) throw missing(['body', 'responses_create_params'], row)
  if (!isJsonObject(response)) throw missing(['body', 'response'], row)
  const { output } = response
  if (!Array.isArray(output)) throw missing(['body', 'response', 'output'], response)
  const { input, instructions } = params
  const given = Array.isArray(input) ? input : [{ role: 'user', content: input ?? '' }]
  const messages = messagesOf({ model: 'policy', instructions: instructions ?? null, input: [...given, ...output] })
  const last = messages.findLast(({ role }) => role === 'assistant')
  return { messages, answer: last ? textOf(last) : null, outcome: outcomeOf(response, messages) }
}

function messagesOf(request: JsonObject): readonly Message[] {
  try {
    return responsesServer.read(request, { backendApi: 'chat' }).messages
  } catch (error) {
    const { rawMessage } = MillraceError.from(error, 'usage')
    throw refusal({ type: 'value_error', loc: ['body', 'response'], msg: rawMessage, input: null })
  }
}

/** How the agent ended, as far as its response says. */
function outcomeOf({ incomplete_details: incomplete }: JsonObject, messages: readonly Message[]): Outcome {
  if (isJsonObject(incomplete)) return 'max_tokens'
  return messages.at(-1)?.role === 'tool' ? 'max_turns' : 'completed'
}

function hasCalledTools({ messages }: Conversation): boolean {
  return messages.some(({ role }) => role === 'tool')
}

function withoutState(environment: string): MillraceError {
  const message = `a reward of ${environment} reads the state, and the session whose tools made it has ended or was never seeded: POST /seed_session, call the tools, and verify with the same cookie`
  return new MillraceError('usage', message, { data: { status: 409 } })
}

/** The text of the request with the reward: numbers that JavaScript would change stay as they are. */
function verified(body: Buffer, row: JsonObject, score: SessionScore & Pick<Conversation, 'outcome'>): string {
  const text = body.toString().trimEnd()
  return `${text.slice(0, -1)},${resultFields(score, Object.keys(row))}}`
}
