import { z } from 'zod'
import { defineEnvironment, jsonlAsWritten, type RolloutContext } from '../env/index.ts'
import { MillraceError } from '../errors/index.ts'
import { nearestName } from '../kit/index.ts'
import { emptyUsage, type Message, type ToolDefinition, type Usage } from '../schema/index.ts'
import { jsonSchemaParameters, type Tool, ToolAnswer } from '../tools/index.ts'
import { agentRefOf } from './gym-row.ts'
import { type GymTask, gymTaskSchema, sentRow } from './gym-task.ts'
import { type GivenPrompts, promptTemplateSchema, withPrompts } from './prompt-template.ts'
import { isSuccess, ResourcesSession } from './resources-server.ts'
import { episodeDigest, readVerified, type Verified, verifiedNote, verifyBody } from './verify.ts'

export const gymOptionsSchema = z.strictObject({
  /** The JSONL file with the rows. */
  input: z.string(),
  /** The addresses of the resources servers by name. */
  servers: z.record(z.string(), z.string()),
  /** The agents that rows may name, with the resources server of each. */
  agents: z.record(
    z.string(),
    z.strictObject({
      server: z.string(),
      maxSteps: z.int().min(1).exactOptional(),
      /** The messages of rows that have none; a text says why there are none. */
      prompt: z.union([promptTemplateSchema, z.string()]).exactOptional(),
      /** Answers are corrected only if the verifier asks for that. */
      corrections: z.literal('asked').exactOptional(),
    }),
  ),
  /** The agent of all rows, whatever they name. */
  agent: z.string().exactOptional(),
  /** The messages of all rows. */
  prompt: promptTemplateSchema.exactOptional(),
})

type GymOptions = z.infer<typeof gymOptionsSchema>

interface GymState {
  readonly session: ResourcesSession
  /** The row as the server is sent it. */
  readonly row: string
  verified?: Verified & { readonly digest: string }
  /** How often the verifier has asked for a correction. */
  corrections: number
  /** What had been used by then: each correction is a response of its own. */
  usedBefore: Usage
}

/** The context of a reward. Rollouts add the usage, on which environments cannot rely. */
interface CountedContext {
  readonly messages: readonly Message[]
  readonly usage?: Usage | undefined
}

type Context = RolloutContext<GymTask, GymState, GymOptions>

/** Rows of NeMo Gym, with one of its resources servers as their tools, their state and their verifier. */
export const environment = defineEnvironment({
  name: 'nemo-gym',
  options: gymOptionsSchema,
  // NeMo Gym gives its servers other ports at each start.
  addresses: ['servers'],
  task: gymTaskSchema,
  tasks(options) {
    const of: GivenPrompts['of'] = (row) => options.agents[agentName(agentRefOf(row), options) ?? '']?.prompt
    return withPrompts(jsonlAsWritten(options.input), { ofAll: options.prompt, of })
  },
  async setup({ task, options, rollout, signal }): Promise<GymState> {
    const agent = agentFor(task, options)
    const row = sentRow(task, { rollout: rollout.id, sample: rollout.sample, agent: agent.name })
    const session = new ResourcesSession(options.servers[agent.server] ?? '')
    try {
      await session.seed(row, signal)
    } catch (error) {
      await session[Symbol.asyncDispose]()
      throw error
    }
    return { session, row, corrections: 0, usedBefore: emptyUsage() }
  },
  forTask: ({ request: { tools, sampling } }) => ({ sampling, ...(tools.length > 0 && { tools: serverTools(tools) }) }),
  prompt: ({ task }) => task.request.messages,
  update({ task, options, messages }) {
    const { maxSteps } = agentFor(task, options)
    if (maxSteps === undefined) return undefined
    const steps = repliesIn(messages) - repliesIn(task.request.messages)
    return steps >= maxSteps ? { end: true } : undefined
  },
  async reward(context) {
    const { state, task, messages, outcome, rollout, signal } = context
    const { session, row, corrections } = state
    const { dropped } = task.request
    if (dropped) context.note('dropped', dropped)
    const episode = { rollout: rollout.id, messages, outcome, corrections, usage: usedSince(state.usedBefore, context) }
    const digest = episodeDigest(episode)
    // An agent that has its answer verified, and leaves it, has that answer's reward: a judge may say something else the next time.
    const verified =
      state.verified?.digest === digest
        ? state.verified
        : { ...readVerified(await session.verify(verifyBody(task, row, episode), signal), row), digest }
    state.verified = verified
    for (const [name, value] of Object.entries(verified.metrics)) context.metric(name, value)
    context.note(verifiedNote, verified.fields)
    if (session.retries > 0) context.metric('nemo_gym_retries', session.retries)
    return verified.reward
  },
  feedback(context) {
    const { state, task, options, reward } = context
    const { needsCorrection, correctionPrompt } = state.verified ?? {}
    const isAsked = needsCorrection === true && correctionPrompt !== undefined
    // A verifier that knows of corrections asks for them. Beside any other one, the reward decides, for agents that were chosen by hand.
    const decides = needsCorrection !== undefined || agentFor(task, options).corrections === 'asked'
    if (decides ? !isAsked : reward >= 1) return undefined
    state.corrections += 1
    state.usedBefore = usedSince(emptyUsage(), context)
    return correctionPrompt ?? `The reward of this answer is ${reward}, so it is not right yet.`
  },
  async teardown({ state }) {
    await state?.session[Symbol.asyncDispose]()
  },
})

function agentName(named: string | undefined, { agents, agent: ofAll }: GymOptions): string | undefined {
  const known = Object.keys(agents)
  return ofAll ?? named ?? (known.length === 1 ? known[0] : undefined)
}

function agentFor(task: GymTask, options: GymOptions): GymOptions['agents'][string] & { readonly name: string } {
  const known = Object.keys(options.agents)
  const name = agentName(task.agent, options)
  const agent = name === undefined ? undefined : options.agents[name]
  if (name !== undefined && agent) return { ...agent, name }
  const near = name === undefined ? undefined : nearestName(name, known)
  const what = name === undefined ? 'the row names no agent (agent_ref)' : `the configuration has no agent ${name}`
  const hint = near === undefined ? `its agents are ${known.join(', ')}` : `did you mean ${near}?`
  throw new MillraceError(
    'task_invalid',
    `${what}; ${hint}. Or choose the agent of all rows with --nemo-gym.agent=<name> (agentName)`,
  )
}

function usedSince(before: Usage, { usage = emptyUsage() }: CountedContext): Usage {
  const [input, output] = [usage.input - before.input, usage.output - before.output]
  const cachedInput = usage.cachedInput - before.cachedInput
  return {
    calls: usage.calls - before.calls,
    input,
    cachedInput,
    output,
    reasoning: usage.reasoning - before.reasoning,
  }
}

function repliesIn(messages: readonly Message[]): number {
  return messages.reduce((count, { role }) => (role === 'assistant' ? count + 1 : count), 0)
}

/** Sets of tools by their JSON: rows of one dataset mostly have the same. */
const toolSets = new Map<string, Readonly<Record<string, Tool<Context>>>>()
const maxToolSets = 64

function serverTools(definitions: readonly ToolDefinition[]): Readonly<Record<string, Tool<Context>>> {
  const key = JSON.stringify(definitions)
  const known = toolSets.get(key)
  if (known) return known
  if (toolSets.size === maxToolSets) toolSets.clear()
  const tools = Object.fromEntries(definitions.map((each) => [each.function.name, serverTool(each)]))
  toolSets.set(key, tools)
  return tools
}

/** The server judges the arguments itself. Its sessions are not made for calls side by side. */
function serverTool({ function: { name, description, parameters } }: ToolDefinition): Tool<Context> {
  const call = (args: string, context: Context): Promise<ToolAnswer> => callTool(name, args, context)
  const { jsonSchema } = jsonSchemaParameters(parameters)
  const validate = (value: unknown): { readonly value: unknown } => ({ value })
  return {
    ...(description !== undefined && { description }),
    parameters: Object.assign({ '~standard': { version: 1, vendor: 'millrace', validate } as const }, { jsonSchema }),
    exclusive: true,
    timeoutMs: Number.POSITIVE_INFINITY,
    run: (args, context) => call(JSON.stringify(args), context),
    runWritten: call,
  }
}

async function callTool(name: string, written: string, { state, signal }: Context): Promise<ToolAnswer> {
  const args = written.trim() === '' ? '{}' : written
  let value: unknown
  try {
    value = JSON.parse(args)
  } catch (error) {
    const { rawMessage } = MillraceError.from(error, 'tool_failed')
    return new ToolAnswer(JSON.stringify({ error: `Invalid tool call arguments: ${rawMessage}` }), { isError: true })
  }
  // As NeMo Gym's own client does: `null` is no body.
  const { status, text } = await state.session.tool(name, value === null ? undefined : args, signal)
  return isSuccess(status) ? new ToolAnswer(text) : new ToolAnswer(text, { isError: true, detail: { status } })
}
