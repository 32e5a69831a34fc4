import type { FastifyInstance } from 'fastify'
import { MillraceError } from '../../../errors/index.ts'
import type { BodyIntake } from '../../http/body.ts'
import type { ServedAgents } from '../../rollouts/served-agents.ts'
import { agentRoutes, awaitClients } from './agent-routes.ts'
import { type GymServer, headRoutes } from './head-routes.ts'
import { resourceRoutes } from './resource-routes.ts'
import { SessionCookies } from './session-cookie.ts'
import { StrayRequests } from './stray-requests.ts'
import { UndeliveredRuns } from './undelivered-runs.ts'
import { type GymAgent, type GymOptions, useGymWire } from './wire-scope.ts'

interface GymParts extends GymOptions {
  readonly agents: ServedAgents
  readonly intake: BodyIntake
  /** Told of every reply with a status from 500 on. */
  readonly onFault?: ((error: MillraceError) => void) | undefined
}

/**
 * NeMo Gym's protocol: one head, and a scope with cookies of its own for each agent. Paths without an agent are those of the only
 * one; of several, a row says which one it means, and a session cannot. Returns what answers requests that reach none of these.
 */
export function gymRoutes(app: FastifyInstance, { onFault, ...parts }: GymParts): StrayRequests {
  app.get('/', async (_request, reply) => await reply.send({ status: 'ok' }))
  const { names } = parts.agents
  const servers = names.map((name): GymServer => ({ name, kind: 'responses_api_agents' }))
  headRoutes(app, () => servers)
  const runs = new UndeliveredRuns(parts.agents.get().bounds.abandonGraceMs)
  for (const [, service] of parts.agents.entries) awaitClients(service, runs)
  const allCookies = new Map(names.map((name) => [name, new SessionCookies('Millrace', name)]))
  for (const [name, cookies] of allCookies) {
    const isFirst = name === names[0]
    const bases: GymAgent['base'][] = [`/agents/${name}`]
    if (isFirst) bases.push('')
    for (const base of bases) {
      app.register((scope, _options, done) => {
        useGymWire(scope, cookies, { onFault })
        const agent = { ...parts, base, name, cookies, runs }
        agentRoutes(scope, agent)
        if (base === '' && names.length > 1) namelessRoutes(scope, agent)
        else resourceRoutes(scope, agent)
        done()
      })
    }
  }
  const strays = new StrayRequests(allCookies)
  app.addHook('onRequest', (request, reply, next) => {
    if (!strays.refuseOwnRoute(request, reply)) next()
  })
  return strays
}

/** Which of several environments is meant cannot be told: a session with the wrong one would have wrong rewards. */
function namelessRoutes(scope: FastifyInstance, { agents: { names }, cookies }: GymAgent): void {
  const paths = names.map((name) => `/agents/${name}`).join(' or ')
  for (const path of ['/seed_session', '/verify', '/:tool']) {
    scope.post(path, { config: { gymCookies: cookies } }, () => {
      const message = `this server has several environments: put ${paths} before the path, or serve each one on a port of its own`
      throw new MillraceError('usage', message)
    })
  }
}
