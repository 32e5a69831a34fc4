import { resolve } from 'node:path'
import { agentNamed, type AgentName, type NamedAgent, namedAgentOf } from '../agents/index.ts'
import { MillraceError } from '../errors/index.ts'
import { type Variables, workerUrl } from '../kit/index.ts'
import { isJsonObject, type JsonObject } from '../schema/index.ts'
import { type ConfiguredAgent, readAgents } from './read-config.ts'
import { requireServer } from './resources-server.ts'

export interface NemoGymOptions {
  /** Configurations of NeMo Gym, later ones over earlier ones; or the address of its head server, which has all of them. */
  readonly config: string | readonly string[]
  /** The JSONL file with the rows. */
  readonly input: string
  /** The address of the resources server, if the configuration has no port for it. */
  readonly url?: string | undefined
  /** The configured agent of all rows, whatever they name. */
  readonly agentName?: string | undefined
  /** The file of a prompt for all rows, over those of the configuration. The rows have no `input` of their own. */
  readonly promptConfig?: string | undefined
  /** The built-in agent that runs the rows, in place of the configured one. */
  readonly agent?: AgentName | NamedAgent | undefined
  /** Values over those of the configuration, as `{ server: { resources_servers: { kind: { port: 8000 } } } }`. */
  readonly overrides?: JsonObject | undefined
  /** Ask each resources server for an answer first. On by default. */
  readonly preflight?: boolean | undefined
  readonly cwd?: string | undefined
  readonly env?: Variables | undefined
  readonly signal?: AbortSignal | undefined
}

/** Options of `evaluate()` that make rows and a resources server of NeMo Gym its environment. */
export interface NemoGymEnvironment {
  readonly environment: string
  readonly options: Readonly<Record<string, unknown>>
  readonly agent?: NamedAgent
}

/** How the agents of NeMo Gym are run here. The simple agent is the tool loop, which needs no name. */
const kinds: Readonly<Record<string, (agent: ConfiguredAgent) => NamedAgent | undefined>> = {
  simple_agent: () => undefined,
  non_executing_simple_agent: () => ({ name: 'nonExecuting' }),
  // An environment that Millrace serves: its head does not say which agent it has there.
  millrace: () => undefined,
  proof_refinement_agent: (agent) => ({ name: 'refine', turns: 1 + wholeNumber(agent, 'max_correction_turns') }),
}

/** Reads a configuration of NeMo Gym: `evaluate({ ...(await nemoGym({ config, input })), model })`. */
export async function nemoGym(options: NemoGymOptions): Promise<NemoGymEnvironment> {
  const { input, agentName, cwd = process.cwd(), env = process.env, overrides, preflight = true, signal } = options
  const { promptConfig } = options
  const configs = [options.config].flat()
  const { agents: all, prompt: ofAll } = await readAgents({ configs, promptConfig, overrides, cwd, env })
  const agents = agentName === undefined ? all : new Map([[agentName, chosen(all, agentName)]])
  const agent = options.agent === undefined ? commonAgent(agents) : namedAgentOf(options.agent)
  if (agent) agentNamed(agent)
  const served = addresses(agents, options.url)
  if (preflight) await Promise.all(Object.values(served).map((url) => requireServer(url, signal)))
  return {
    environment: workerUrl(import.meta, './environment').href,
    options: {
      input: resolve(cwd, input),
      servers: served,
      agents: Object.fromEntries(
        Array.from(agents, ([name, configured]) => {
          const { kind, server, prompt } = configured
          const maxSteps = kind === 'simple_agent' ? wholeNumber(configured, 'max_steps') : 0
          const corrections = kind === 'proof_refinement_agent' && options.agent === undefined ? 'asked' : undefined
          const bounds = { ...(maxSteps > 0 && { maxSteps }), ...(corrections && { corrections }) }
          return [name, { server, ...bounds, ...(prompt !== undefined && { prompt }) }]
        }),
      ),
      ...(agentName !== undefined && { agent: agentName }),
      ...(ofAll && { prompt: ofAll }),
    },
    ...(agent && { agent }),
  }
}

/** What a run of rows is named after: its agent, or else its resources server. Undefined for another environment. */
export function gymRunName({
  name,
  options,
}: {
  readonly name: string
  readonly options: unknown
}): string | undefined {
  if (name !== 'nemo-gym' || !isJsonObject(options)) return undefined
  const { agent, agents, servers } = options
  if (typeof agent === 'string') return agent
  const lists = [agents, servers].map((each) => (isJsonObject(each) ? Object.keys(each) : []))
  return lists.find(({ length }) => length === 1)?.[0]
}

function chosen(agents: ReadonlyMap<string, ConfiguredAgent>, name: string): ConfiguredAgent {
  const agent = agents.get(name)
  if (agent) return agent
  throw new MillraceError(
    'config_invalid',
    `the configuration has no agent ${name}; its agents are ${[...agents.keys()].join(', ')}`,
  )
}

/** The agent that runs the rows: one for a whole run. */
function commonAgent(agents: ReadonlyMap<string, ConfiguredAgent>): NamedAgent | undefined {
  const made = Array.from(agents, ([name, agent]) => {
    const make = Object.hasOwn(kinds, agent.kind) ? kinds[agent.kind] : undefined
    if (make) return make(agent)
    throw new MillraceError(
      'config_invalid',
      `${name} is a ${agent.kind}, which Millrace does not know; it knows ${Object.keys(kinds).join(', ')}. ` +
        'Run the rows with a built-in agent, as --agent plan (agent), or name another one with --nemo-gym.agent=<name> (agentName)',
    )
  })
  const [first] = made
  if (made.every((each) => JSON.stringify(each) === JSON.stringify(first))) return first
  throw new MillraceError(
    'config_invalid',
    `a run has one kind of agent, and the configuration has several: name one with --nemo-gym.agent=<name> (agentName), of ${[...agents.keys()].join(', ')}`,
  )
}

/** The addresses of the agents' resources servers, by name. */
function addresses(agents: ReadonlyMap<string, ConfiguredAgent>, given: string | undefined): Record<string, string> {
  const servers = new Set(Array.from(agents.values(), ({ server }) => server))
  if (given !== undefined && servers.size > 1) {
    throw new MillraceError(
      'config_invalid',
      `--nemo-gym.url (url) is the address of one resources server, and there are several: ${[...servers].join(', ')}; ` +
        'name one agent with --nemo-gym.agent=<name> (agentName), or give each server its port as below resources_servers in its file',
    )
  }
  return Object.fromEntries(
    Array.from(agents.values(), ({ server, url }) => {
      const address = given ?? url
      if (address !== undefined && URL.canParse(address) && /^https?:/.test(address)) return [server, address]
      const why = address === undefined ? `the configuration has no port for` : `${address} is no address of`
      const how = 'start it, and give its address as --nemo-gym.url=<address> (url)'
      throw new MillraceError('config_invalid', `${why} the resources server ${server}: ${how}`)
    }),
  )
}

/** A field of an agent, also where a variable gives it as text; 0, which is no limit, if it is not set. */
function wholeNumber({ at, field }: ConfiguredAgent, name: string): number {
  const value = field(name) ?? 0
  const number = typeof value === 'string' && /^\s*\d+\s*$/.test(value) ? Number(value) : value
  if (typeof number === 'number' && Number.isSafeInteger(number) && number >= 0) return number
  const shown = `${at}.${name} is ${JSON.stringify(value)}`
  throw new MillraceError('config_invalid', `${shown}, which is no whole number: correct it, or leave it out`)
}
