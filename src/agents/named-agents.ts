import { z } from 'zod'
import { type Agent, mustBe } from '../env/index.ts'
import { MillraceError } from '../errors/index.ts'
import { nearestName } from '../kit/index.ts'
import { closedObject, describeIssues, type Json, jsonSchema, safeParse } from '../schema/index.ts'
import { choices } from './choose.ts'
import { external, externalShape } from './external.ts'
import { nonExecuting } from './non-executing.ts'
import { orchestrate } from './orchestrate.ts'
import { parallel } from './parallel.ts'
import { plan } from './plan.ts'
import { reflect } from './reflect.ts'
import { refine } from './refine.ts'
import { singleTurn } from './single-turn.ts'
import { toolLoop } from './tool-loop.ts'
import { userSimulator } from './user-simulator.ts'

/** An agent by its name, with those of its options that can be written down: as a command line and a stored run have it. */
export type NamedAgent = { readonly name: AgentName } & { readonly [option: string]: Json }

/** As a caller may give it: what it says is checked. */
type GivenAgent = string | { readonly name: string; readonly [option: string]: unknown }

interface Entry {
  readonly options: z.ZodType
  make(options: unknown): Agent
}

const count = z.int().exactOptional()
const text = z.string().exactOptional()
const names = z.array(z.string(), mustBe('a list of names, such as ["search", "read"]')).exactOptional()
const another = z
  .union(
    [z.string(), z.looseObject({ name: z.string() })],
    mustBe(
      'an agent: its name, or its options with the name, such as { name: "plan", maxCalls: 5 }, or --agent.agent.name=plan (agent.agent.name)',
    ),
  )
  .exactOptional()
const subAgent = closedObject({
  description: z.string(),
  instructions: text,
  model: text,
  tools: names,
  agent: another,
  share: z.number().exactOptional(),
})

/** Each agent with a schema of the options that can be written down. What their values may be, the agent itself checks. */
const namedAgents = {
  toolLoop: named({}, toolLoop),
  singleTurn: named({}, singleTurn),
  nonExecuting: named({}, nonExecuting),
  plan: named({ maxCalls: count }, plan),
  refine: named({ turns: count, agent: another }, ({ agent, ...rest }) => refine({ ...rest, ...agentOf(agent) })),
  reflect: named(
    { turns: count, agent: another, critic: another, model: text, instructions: text, tools: names },
    ({ agent, critic, ...rest }) =>
      reflect({ ...rest, ...agentOf(agent), ...(critic !== undefined && { critic: agentNamed(critic) }) }),
  ),
  parallel: named(
    { attempts: count, choose: z.enum(choices).exactOptional(), agent: another, model: text },
    ({ agent, ...rest }) => parallel({ ...rest, ...agentOf(agent) }),
  ),
  orchestrate: named(
    {
      agents: z.record(z.string(), subAgent, { error: ({ input }) => notJson(input) }),
      tools: names,
      agent: another,
      atOnce: count,
      maxDepth: count,
    },
    ({ agents, agent, ...rest }) => {
      const made = Object.entries(agents).map(([name, { agent: own, ...sub }]) => [name, { ...sub, ...agentOf(own) }])
      return orchestrate({ ...rest, ...agentOf(agent), agents: Object.fromEntries(made) })
    },
  ),
  external: named(externalShape, external),
  userSimulator: named(
    { model: text, persona: text, personaField: text, turns: count, stop: text, agent: another },
    ({ agent, ...rest }) => userSimulator({ ...rest, ...agentOf(agent) }),
  ),
} satisfies Readonly<Record<string, Entry>>

export type AgentName = keyof typeof namedAgents

export const agentNames = Object.keys(namedAgents) as readonly AgentName[]

/** A named agent as a run keeps it. */
export const namedAgentSchema: z.ZodType<NamedAgent> = z.object({ name: z.enum(agentNames) }).catchall(jsonSchema)

/** Throws `config_invalid` if there is no such agent, or if an option is not one of its own. */
export function agentNamed(given: GivenAgent): Agent {
  const { name, ...options } = typeof given === 'string' ? { name: given } : given
  const entry: Entry = namedAgents[knownName(name)]
  const checked = safeParse(entry.options, options)
  if (!checked.success) {
    throw new MillraceError('config_invalid', `agent ${name}: ${describeIssues(checked.error.issues, options)}`)
  }
  try {
    return entry.make(checked.data)
  } catch (error) {
    const { rawMessage } = MillraceError.from(error, 'env_invalid')
    throw new MillraceError('config_invalid', `agent ${name}: ${rawMessage}`, { cause: error })
  }
}

/** The same agent as a value that can be compared and kept; its options as they were given. */
export function namedAgentOf(given: NamedAgent | string): NamedAgent {
  return typeof given === 'string' ? { name: knownName(given) } : { ...given, name: knownName(given.name) }
}

function agentOf(agent: GivenAgent | undefined): { readonly agent?: Agent } {
  return agent === undefined ? {} : { agent: agentNamed(agent) }
}

/** On the command line, JSON that cannot be read is a text. */
function notJson(input: unknown): string | undefined {
  if (typeof input !== 'string') return undefined
  return `must be the agents by their names, as JSON, and this is not valid JSON: ${input.slice(0, 60)}`
}

function knownName(name: unknown): AgentName {
  const known = agentNames.find((each) => each === name)
  if (known) return known
  if (typeof name !== 'string') {
    const found = name === undefined ? 'has no `name`' : 'has a `name` that is not a text'
    const message = `an agent is its name, or { name, … } with its options, and this one ${found}`
    throw new MillraceError('config_invalid', `${message}; the agents are ${agentNames.join(', ')}`)
  }
  const near = nearestName(name, agentNames)
  const hint = near === undefined ? `the agents are ${agentNames.join(', ')}` : `did you mean ${near}?`
  throw new MillraceError('config_invalid', `there is no agent named ${JSON.stringify(name)}; ${hint}`)
}

function named<Shape extends z.core.$ZodShape>(
  shape: Shape,
  make: (options: z.output<z.ZodObject<Shape, z.core.$strict>>) => Agent,
): Entry {
  const options = closedObject(shape)
  return { options, make: (given) => make(options.parse(given)) }
}
