import type { FastifyInstance, FastifyRequest } from 'fastify'
import type { MillraceError } from '../../../errors/index.ts'
import type { BodyIntake } from '../../http/body.ts'
import type { ServedAgents } from '../../rollouts/served-agents.ts'
import { agentRoutes } from './agent-routes.ts'
import { resourceRoutes } from './resource-routes.ts'
import { SessionCookies } from './session-cookie.ts'
import { UndeliveredRuns } from './undelivered-runs.ts'
import { type GymAgent, type GymOptions, useGymWire } from './wire-scope.ts'

interface GymParts extends GymOptions {
  readonly agents: ServedAgents
  readonly intake: BodyIntake
  /** Told of every reply with a status from 500 on. */
  readonly onFault?: ((error: MillraceError) => void) | undefined
}

/** NeMo Gym's protocol: one head, and a scope with cookies of its own for each agent. Paths without an agent are the first one's. */
export function gymRoutes(app: FastifyInstance, { onFault, ...parts }: GymParts): void {
  headRoutes(app, parts.agents)
  const runs = new UndeliveredRuns(parts.agents.get().bounds.abandonGraceMs)
  for (const [index, name] of parts.agents.names.entries()) {
    const cookies = new SessionCookies('Millrace', name)
    const bases: GymAgent['base'][] = [`/agents/${name}`]
    if (index === 0) bases.push('')
    for (const base of bases) {
      app.register((scope, _options, done) => {
        useGymWire(scope, cookies, { onFault })
        const agent = { ...parts, base, name, cookies, runs }
        agentRoutes(scope, agent)
        resourceRoutes(scope, agent)
        done()
      })
    }
  }
}

/** One entry of NeMo Gym's configuration: a server by name, with its kind and the implementation. */
interface GymServer {
  readonly name: string
  readonly kind: 'responses_api_agents'
}

function gymServers(agents: ServedAgents): readonly GymServer[] {
  return agents.names.map((name) => ({ name, kind: 'responses_api_agents' }))
}

const implementation = 'millrace'

const serverKinds: Readonly<Record<GymServer['kind'], string>> = { responses_api_agents: 'responses_api_agent' }

/** Where NeMo Gym's clients find the servers: all at the address that the client itself has asked. */
function headRoutes(app: FastifyInstance, agents: ServedAgents): void {
  app.get('/', async (_request, reply) => await reply.send({ status: 'ok' }))

  app.get('/global_config_dict_yaml', async (request, reply) => {
    const address = addressOf(request)
    const blocks = gymServers(agents).map(({ name, kind }) => [name, { [kind]: { [implementation]: address } }])
    const config = JSON.stringify({ head_server: address, ...Object.fromEntries(blocks) })
    // JSON is YAML, and a client parses the string within the string as YAML.
    return await reply.type('application/json').send(JSON.stringify(config))
  })

  const startedAt = Date.now()
  app.get('/server_instances', async (request, reply) => {
    const { host, port } = addressOf(request)
    const instances = gymServers(agents).map(({ name, kind }) => ({
      process_name: name,
      server_type: serverKinds[kind],
      name: implementation,
      config_path: name,
      host,
      port,
      url: `http://${host.includes(':') ? `[${host}]` : host}:${port}`,
      pid: process.pid,
      status: 'success',
      start_time: startedAt / 1000,
      uptime_seconds: (Date.now() - startedAt) / 1000,
    }))
    return await reply.send(instances)
  })
}

const httpPort = 80

/** The address that this client has for the server: what it listens on says nothing to a client behind a proxy or a tunnel. */
function addressOf({ host, port, socket }: FastifyRequest): { host: string; port: number } {
  const { hostname } = new URL(`http://${host}`)
  const isBare = !/:\d+$/.test(host)
  return {
    host: hostname.replace(/^\[(.*)\]$/, '$1'),
    port: isBare ? httpPort : (port ?? socket.localPort ?? httpPort),
  }
}
