import type { FastifyError, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { MillraceError } from '../../../errors/index.ts'
import type { BodyIntake } from '../../http/body.ts'
import type { UnknownRoute } from '../../http/routes.ts'
import type { ServedAgents } from '../../rollouts/served-agents.ts'
import type { CookieSession, SessionCookies } from './session-cookie.ts'
import type { UndeliveredRuns } from './undelivered-runs.ts'
import {
  apiErrorReply,
  errorReply,
  methodNotAllowedReply,
  notFoundReply,
  type WireReply,
} from '../fastapi/wire-errors.ts'

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Whose cookies a route of NeMo Gym's protocol sets; its refusals have that protocol's shapes. */
    gymCookies?: SessionCookies
    /** A route of OpenAI's API as well: its clients find errors where they look for them. */
    isOpenAi?: true
  }
}

export interface GymOptions {
  /** How a failed rollout, or a row that does not fit, is answered: with status 200 and its kind, or with an HTTP error. */
  readonly failures: 'class' | 'status'
}

/** What the routes of one agent in such a scope need. */
export interface GymAgent extends GymOptions {
  /** What their paths begin with. */
  readonly base: '' | `/agents/${string}`
  /** The agent of the paths; of bare paths, which stand for all agents, the first one. */
  readonly name: string
  readonly agents: ServedAgents
  readonly intake: BodyIntake
  readonly cookies: SessionCookies
  readonly runs: UndeliveredRuns
}

const sessions = new WeakMap<FastifyRequest['raw'], CookieSession>()

interface WireScopeOptions {
  /** Told of every reply with a status from 500 on. */
  readonly onFault?: ((error: MillraceError) => void) | undefined
}

/**
 * Makes the routes of a scope ones of NeMo Gym's protocol. Each reply sets the session's cookie, and what a handler throws is
 * answered in the protocol's shapes. Routes say `config: { gymCookies: cookies }`, so that another method at their path is, too.
 */
export function useGymWire(scope: FastifyInstance, cookies: SessionCookies, { onFault }: WireScopeOptions = {}): void {
  scope.addHook('onRequest', (request, reply, next) => {
    startSession(request, reply, cookies)
    next()
  })
  // A body that is empty has no type: what is missing is told by the route.
  scope.addContentTypeParser('*', ({ headers }, _payload, parsed) => {
    const { 'content-length': length = '0', 'transfer-encoding': coding } = headers
    if (length === '0' && coding === undefined) parsed(null)
    else parsed(new MillraceError('usage', 'send JSON, with content-type: application/json', { data: { status: 415 } }))
  })
  scope.setErrorHandler<FastifyError>(async (thrown, request, reply) => {
    const answer = request.routeOptions.config.isOpenAi ? apiErrorReply(thrown) : errorReply(thrown)
    if (answer.status >= 500) onFault?.(MillraceError.from(thrown, 'internal'))
    return await sendWire(reply, answer)
  })
}

/** The session of a request to a route of such a scope. */
export function sessionOf({ raw }: FastifyRequest): CookieSession {
  const session = sessions.get(raw)
  if (session) return session
  throw new MillraceError('internal', 'a route reads a session, but its scope does not use NeMo Gym’s protocol')
}

/** Answers a request without a route if NeMo Gym's protocol has its path, with another method. */
export function refuseOnGymWire(
  request: FastifyRequest,
  reply: FastifyReply,
  { beside }: UnknownRoute,
): FastifyReply | undefined {
  const cookies = beside.find(({ config }) => config?.gymCookies)?.config?.gymCookies
  if (!cookies) return undefined
  startSession(request, reply, cookies)
  // A path with any name is one for calls of tools: nothing is there for another method.
  const named = beside.filter(({ url }) => !url.includes('/:tool'))
  if (named.length === 0) return sendWire(reply, notFoundReply())
  const allowed = new Set(named.map(({ method }) => method))
  return sendWire(reply, methodNotAllowedReply([...allowed].toSorted()))
}

export function sendWire(reply: FastifyReply, { status, headers, body }: WireReply): FastifyReply {
  return reply.code(status).headers(headers).send(body)
}

/** On the raw response, so that a reply which bypasses fastify has them as well. */
export function startSession(request: FastifyRequest, reply: FastifyReply, cookies: SessionCookies): void {
  const session = cookies.session(request.headers.cookie)
  sessions.set(request.raw, session)
  for (const [name, value] of Object.entries(cookies.headers(session))) reply.raw.setHeader(name, value)
}
