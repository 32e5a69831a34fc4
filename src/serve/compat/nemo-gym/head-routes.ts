import type { FastifyInstance, FastifyRequest } from 'fastify'

/** One entry of NeMo Gym's configuration: a server by name, with its kind and the implementation. */
export interface GymServer {
  readonly name: string
  readonly kind: 'responses_api_agents' | 'responses_api_models'
}

interface ListedServer {
  readonly name: string
  readonly kind: GymServer['kind'] | 'resources_servers'
  /** Of an agent: the name of its resources server. */
  readonly environment?: string
}

const implementation = 'millrace'

const serverTypes: Readonly<Record<ListedServer['kind'], string>> = {
  responses_api_agents: 'responses_api_agent',
  responses_api_models: 'responses_api_model',
  resources_servers: 'resources_server',
}

/** The environment of the only agent is a resources server, too. Those of several need a path, which a configuration cannot say. */
function withEnvironment(servers: readonly GymServer[]): readonly ListedServer[] {
  const [agent, ...others] = servers.filter(({ kind }) => kind === 'responses_api_agents')
  if (!agent || others.length > 0) return servers
  const environment = `${agent.name}_resources_server`
  return [
    ...servers.map((each) => (each === agent ? { ...each, environment } : each)),
    { name: environment, kind: 'resources_servers' },
  ]
}

/** NeMo Gym's head, beside its `GET /`: where clients find the servers, all at the address that the client itself has asked. */
export function headRoutes(app: FastifyInstance, servers: () => readonly GymServer[]): void {
  app.get('/global_config_dict_yaml', async (request, reply) => {
    const address = addressOf(request)
    const blocks = withEnvironment(servers()).map(({ name, kind, environment }) => {
      const uses = environment !== undefined && { resources_server: { type: 'resources_servers', name: environment } }
      return [name, { [kind]: { [implementation]: { ...address, ...uses } } }]
    })
    const config = JSON.stringify({ head_server: address, ...Object.fromEntries(blocks) })
    // JSON is YAML, and a client parses the string within the string as YAML.
    return await reply.type('application/json').send(JSON.stringify(config))
  })

  const startedAt = Date.now()
  app.get('/server_instances', async (request, reply) => {
    const { host, port } = addressOf(request)
    const instances = withEnvironment(servers()).map(({ name, kind }) => ({
      process_name: name,
      server_type: serverTypes[kind],
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
