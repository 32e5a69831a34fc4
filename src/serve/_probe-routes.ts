import type { FastifyInstance } from 'fastify'
import type { Readiness } from './_readiness.ts'

/** Those that need no key: a probe has none. */
export const openPaths: ReadonlySet<string> = new Set(['/health', '/ready'])

/** Whether the process lives, and whether it would do what it is asked for. */
export function probeRoutes(app: FastifyInstance, readiness: () => Readiness | Promise<Readiness>): void {
  app.get('/health', async (_request, reply) => await reply.send({ status: 'ok' }))

  app.get('/ready', async (_request, reply) => {
    const found = await readiness()
    if (found.isReady) return await reply.send({ status: 'ready' })
    return await reply.code(503).send({ status: 'not ready', why: found.why })
  })
}
