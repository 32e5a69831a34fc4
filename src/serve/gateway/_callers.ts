import type { IncomingHttpHeaders } from 'node:http'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { MillraceError } from '../../errors/index.ts'
import type { Caller, Gateway } from '../../gateway/index.ts'
import { refuse } from '../_door-error.ts'
import { keysIn, type SentKeys } from './_token.ts'

declare module 'fastify' {
  interface FastifyRequest {
    /** Whose key was sent; null where none is asked for. */
    caller: Caller | null
  }
}

/** From here on every route of `app` asks for a key. */
export function requireCaller(app: FastifyInstance, gateway: Gateway): void {
  app.decorateRequest('caller', null)
  app.addHook('onRequest', (request, reply, next) => {
    request.caller = callerFrom(gateway, request.headers) ?? null
    if (request.caller) next()
    else void refuse(reply, 'unauthorized', keyWanted(keysIn(request.headers)))
  })
}

/**
 * Whose key was sent. One that is known is enough: Anthropic's clients send a second one wherever they find it in their
 * environment, for another server.
 */
export function callerFrom(gateway: Gateway, headers: IncomingHttpHeaders): Caller | undefined {
  const { bearer, apiKey } = keysIn(headers)
  return gateway.callerFor(bearer) ?? gateway.callerFor(apiKey)
}

/** In the words of a model's API. */
export function unauthorized(headers: IncomingHttpHeaders): MillraceError {
  return new MillraceError('model_auth', keyWanted(keysIn(headers)), { data: { status: 401 } })
}

/** A key that was not sent and one that is wrong are mended in different places. */
function keyWanted({ bearer, apiKey }: SentKeys): string {
  return bearer === undefined && apiKey === undefined
    ? 'send a key of this gateway, as authorization: Bearer <key> or x-api-key: <key>'
    : 'this gateway does not know the key that was sent: it takes an admin key, or that of a session'
}

/** Behind `requireCaller` there always is one. */
export function callerOf({ caller }: FastifyRequest): Caller {
  if (caller) return caller
  throw new MillraceError('internal', 'a route that needs a key has not asked for one')
}

/** For what concerns more than one session. */
export function adminOf(request: FastifyRequest): Caller & { readonly kind: 'admin' } {
  const caller = callerOf(request)
  if (caller.kind === 'admin') return caller
  throw new MillraceError('usage', `${request.method} ${request.url} needs an admin key, not the key of a session`, {
    data: { status: 403 },
  })
}
