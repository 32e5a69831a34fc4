import { z } from 'zod'
import { checkOptions, mustBe, wholeNumber } from '../env/index.ts'
import type { Agent, ChildResult, RolloutContext } from '../env/index.ts'
import { MillraceError } from '../errors/index.ts'
import { Semaphore, withAbort } from '../kit/index.ts'
import { outcomes, type Message } from '../schema/index.ts'
import { type Tool, ToolAnswer } from '../tools/index.ts'
import { shareOf } from './children.ts'
import { withoutThoughts } from './replies.ts'
import { toolLoop } from './tool-loop.ts'
import { agentSchema, requireNames, textSchema, withTools } from './watching.ts'

export interface SubAgent {
  /** What a model that may call it is told of it. */
  readonly description: string
  /** Who it is and how it works: its system message. */
  readonly instructions?: string
  /** The run's model if not given. */
  readonly model?: string
  /** The names of the rollout's tools that it may use; all if not given. */
  readonly tools?: readonly string[]
  /** How it works; the tool loop if not given. With an `orchestrate()` of its own it has sub-agents, too. */
  readonly agent?: Agent
  /** The part of its caller's remaining turns and tokens that each call gets; an equal part for each agent and the caller if not given. */
  readonly share?: number
}

export interface OrchestrateOptions {
  /** The agents by the names of the tools that call them. */
  readonly agents: Readonly<Record<string, SubAgent>>
  /** The names of the rollout's tools that the orchestrator itself may use; all if not given. */
  readonly tools?: readonly string[]
  /** How the orchestrator itself works; the tool loop if not given. */
  readonly agent?: Agent
  /** How many agents work for it at the same time; 4 if not given. Further calls wait. */
  readonly atOnce?: number
  /** How many levels of agents there are below the rollout; 3 if not given. On the last level no agents are offered. */
  readonly maxDepth?: number
}

const toolNames = z.array(z.string(), mustBe('a list of names of tools')).optional()
const expectedShare = mustBe('a number above 0 and up to 1')

const subAgentShape = {
  description: textSchema('a text'),
  instructions: textSchema('a text').optional(),
  model: textSchema('the name of a model').optional(),
  tools: toolNames,
  agent: agentSchema.optional(),
  share: z.number(expectedShare).gt(0, expectedShare).max(1, expectedShare).optional(),
}

const optionShape = {
  agents: z.record(z.string(), z.unknown(), mustBe('an object of agents')),
  tools: toolNames,
  agent: agentSchema.optional(),
  atOnce: wholeNumber(1).optional(),
  maxDepth: wholeNumber(1).optional(),
}

/**
 * An agent whose tools are agents, beside those of the rollout. Each call is a child under it, with the agent's own model,
 * instructions, tools and part of the budget; its answer is the result of the call, and so is that it used up its part.
 * With any other failure of an agent the orchestrator fails, too: an answer that was given without the agent must not be scored.
 */
export function orchestrate(options: OrchestrateOptions): Agent {
  checkOptions('orchestrate()', optionShape, options)
  const { agents, tools: names, agent = toolLoop(), atOnce = 4, maxDepth = 3 } = options
  const entries = Object.entries(agents)
  if (entries.length === 0) {
    throw new MillraceError('env_invalid', 'the options of orchestrate(): agents: there must be at least one agent')
  }
  for (const [name, each] of entries) checkOptions(`agent ${name} of orchestrate()`, subAgentShape, each)
  return async (context) => {
    const { tools, depth } = context
    for (const [name, each] of entries) requireNames(context, `agent ${name} of orchestrate()`, each)
    const own = names ? tools.only(names) : tools
    const places = new Semaphore(atOnce)
    const failure = Promise.withResolvers<never>()
    const equal = 1 / (entries.length + 1)
    const callable = entries.map(
      ([name, each]) => [name, agentTool(name, { share: equal, ...each }, { places, fail: failure.reject })] as const,
    )
    const all = depth < maxDepth ? own.with(Object.fromEntries(callable)) : own
    await Promise.race([agent(withTools(context, all)), failure.promise])
  }
}

const parameters = z.object({
  task: z
    .string()
    .describe('What the agent must do, with all that it needs to know: it sees nothing of this conversation.'),
})

type AgentTool = Tool<RolloutContext<unknown, unknown, unknown>, typeof parameters>

function agentTool(
  name: string,
  sub: SubAgent & { readonly share: number },
  { places, fail }: { readonly places: Semaphore; readonly fail: (error: MillraceError) => void },
): AgentTool {
  const { description, instructions, share, model, tools, agent } = sub
  return {
    description,
    parameters,
    // Its tools may work on the rollout's state, which is rebuilt with it.
    resume: 'rerun',
    // The limits of its budget end it.
    timeoutMs: Infinity,
    run: async ({ task }, { child, budget, signal }) => {
      // Before it waits: what is left afterwards depends on the others.
      const limits = shareOf(budget, share)
      await places.acquire(signal)
      try {
        const prompt: Message[] = [{ role: 'user', content: task }]
        if (instructions !== undefined) prompt.unshift({ role: 'system', content: instructions })
        const request = { prompt, limits, ...(model !== undefined && { model }), ...(tools && { tools }) }
        const result = await child({ ...request, ...(agent && { agent }) })
        const { outcome, error } = result
        if (!error || outcomes[outcome].scored) return resultOf(name, result)
        fail(error)
        // The orchestrator hears of no result: it ends now.
        return await withAbort(new Promise<never>(() => {}), signal)
      } finally {
        places.release()
      }
    },
  }
}

function resultOf(name: string, { outcome, answer }: ChildResult): string | ToolAnswer {
  const said = withoutThoughts(answer)
  if (outcome === 'completed' && said !== '') return said
  const words = said === '' ? ' without an answer.' : `. Its last words:\n${said}`
  return new ToolAnswer(`Error: the agent ${name} ended as ${outcome}${words}`, { isError: true })
}
