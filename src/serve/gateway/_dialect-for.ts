import type { FastifyRequest } from 'fastify'
import { messagesServer, type ServerDialect } from '../../dialects/index.ts'
import type { Unrouted } from '../_known-routes.ts'

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Whose words the clients of a route understand; none if those of the door. */
    dialectFor?: (request: Pick<FastifyRequest, 'headers'>) => ServerDialect
  }
}

/** In whose words a request without a route is refused: clients look for the kind of an error where only their API has it. */
export function dialectFor(request: FastifyRequest, { beside: [route] }: Unrouted): ServerDialect | undefined {
  if (route?.config?.dialectFor) return route.config.dialectFor(request)
  return request.headers['anthropic-version'] === undefined ? undefined : messagesServer
}
