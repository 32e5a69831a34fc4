import type { FastifyInstance, FastifyRequest } from 'fastify'
import { MillraceError } from '../errors/index.ts'
import type { Caller, Gateway } from '../gateway/index.ts'
import { refuse } from './_door-error.ts'
import { tokenOf } from './_gateway-token.ts'

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
    request.caller = gateway.callerFor(tokenOf(request.headers)) ?? null
    if (request.caller) next()
    else
      void refuse(reply, 'unauthorized', 'send a key of this gateway: authorization: Bearer <key>, or x-api-key: <key>')
  })
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
