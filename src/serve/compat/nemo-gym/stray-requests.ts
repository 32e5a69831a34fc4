import type { FastifyReply, FastifyRequest } from 'fastify'
import type { RegisteredRoute } from '../../http/routes.ts'
import type { SessionCookies } from './session-cookie.ts'
import { methodNotAllowedReply, notFoundReply } from '../fastapi/wire-errors.ts'
import { sendWire, startSession } from './wire-scope.ts'

/**
 * Requests to paths that NeMo Gym's protocol does not have. A policy can make up a tool with any name, which is part of a path
 * as it is: `a/b`, `../verify`, `v1/rollouts`. Agents replace their cookies with those of each reply, so that an answer without
 * them would end the session.
 */
export class StrayRequests {
  readonly #cookies: ReadonlyMap<string, SessionCookies>

  /** `cookies`: those of each agent, by its name. */
  constructor(cookies: ReadonlyMap<string, SessionCookies>) {
    this.#cookies = cookies
  }

  /** Answers what nothing is at, or `beside` it only other methods. Undefined if no tool is called like this. */
  refuseUnrouted(
    request: FastifyRequest,
    reply: FastifyReply,
    beside: readonly RegisteredRoute[] = [],
  ): FastifyReply | undefined {
    const cookies = isCall(request) ? (this.#cookiesIn(request) ?? this.#cookiesOfPath(request)) : undefined
    if (!cookies) return undefined
    startSession(request, reply, cookies)
    const methods = new Set(beside.map(({ method }) => method))
    return sendWire(reply, methods.size > 0 ? methodNotAllowedReply([...methods].toSorted()) : notFoundReply())
  }

  /** Answers a request of a session to a route of Millrace's own: no tool is to reach these. */
  refuseOwnRoute(request: FastifyRequest, reply: FastifyReply): FastifyReply | undefined {
    const isElsewhere = !request.is404 && !request.routeOptions.config.gymCookies
    const cookies = isCall(request) && isElsewhere ? this.#cookiesIn(request) : undefined
    if (!cookies) return undefined
    startSession(request, reply, cookies)
    return sendWire(reply, notFoundReply())
  }

  /** Those of the agent whose session the request names. */
  #cookiesIn({ headers: { cookie } }: FastifyRequest): SessionCookies | undefined {
    if (cookie === undefined) return undefined
    return this.#cookies.values().find((cookies) => !cookies.session(cookie).isNew)
  }

  /** Those of the agent of the path, or of the first one. */
  #cookiesOfPath({ url }: FastifyRequest): SessionCookies | undefined {
    const [first] = this.#cookies.values()
    const [, , name = ''] = url.startsWith('/agents/') ? url.split('/', 3) : []
    return this.#cookies.get(name) ?? first
  }
}

/** Tools are called with POST. */
function isCall({ method }: FastifyRequest): boolean {
  return method === 'POST'
}
