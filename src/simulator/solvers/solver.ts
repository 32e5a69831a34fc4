import { type JsonObject, type Message, textOf, type ToolDefinition } from '../../schema/index.ts'
import { draw } from '../engine/draw.ts'

export interface SolverReply {
  readonly text?: string
  readonly calls?: readonly { readonly name: string; readonly arguments: JsonObject }[]
}

/** Knows one kind of task, from the messages and tools alone. `context.isRight`: whether to take the right decision. */
export interface Solver {
  readonly name: string
  /** `solveOther` answers what is asked within this request, such as the task that a plan is wanted for. */
  solve(context: SolverContext, solveOther: (context: SolverContext) => SolverReply): SolverReply | undefined
}

/** A longer message is a document rather than a question; only its beginning and end are read. */
const longestQuestion = 16_000

interface ToolResult {
  readonly name: string
  readonly arguments: string
  readonly text: string
}

export class SolverContext {
  readonly messages: readonly Message[]
  readonly tools: readonly ToolDefinition[]
  readonly #skill: number
  readonly #base: number
  readonly #lastUser: number
  #question: string | undefined

  constructor(context: {
    messages: readonly Message[]
    tools: readonly ToolDefinition[]
    skill: number
    base: number
    question?: string
  }) {
    this.messages = context.messages
    this.tools = context.tools
    this.#skill = context.skill
    this.#base = context.base
    this.#question = context.question
    this.#lastUser = context.messages.findLastIndex((message) => message.role === 'user')
  }

  get question(): string {
    if (this.#question === undefined) {
      const message = this.messages[this.#lastUser]
      const text = message ? textOf(message) : ''
      const half = longestQuestion / 2
      this.#question = text.length > longestQuestion ? `${text.slice(0, half)}\n${text.slice(-half)}` : text
    }
    return this.#question
  }

  /** The same request with other parts. A `question` of its own stands in place of what the last user said. */
  with(parts: {
    readonly messages?: readonly Message[]
    readonly tools?: readonly ToolDefinition[]
    readonly question?: string
  }): SolverContext {
    const { messages, tools } = this
    return new SolverContext({ messages, tools, skill: this.#skill, base: this.#base, ...parts })
  }

  /** The texts of the users before the last one, the newest first. */
  get earlierQuestions(): readonly string[] {
    const earlier = this.messages.slice(0, Math.max(0, this.#lastUser)).filter(({ role }) => role === 'user')
    return earlier.map(textOf).toReversed()
  }

  get system(): string {
    const first = this.messages[0]
    return first && (first.role === 'system' || first.role === 'developer') ? textOf(first) : ''
  }

  /** Whether this turn's decision is right: true with the probability `skill`. */
  get isRight(): boolean {
    return this.draw('skill') < this.#skill
  }

  /** A number in [0, 1) for one purpose, always the same for the same request. */
  draw(purpose: string): number {
    return draw(this.#base, purpose)
  }

  pick<T>(items: readonly T[], purpose: string): T {
    return items[Math.floor(this.draw(purpose) * items.length)] as T
  }

  results(since: 'question' | 'start' = 'question'): ToolResult[] {
    const results: ToolResult[] = []
    const calls = new Map<string, { readonly name: string; readonly arguments: string }>()
    for (let index = since === 'start' ? 0 : this.#lastUser + 1; index < this.messages.length; index += 1) {
      const message = this.messages[index]
      if (message?.role === 'assistant') {
        for (const call of message.tool_calls ?? []) calls.set(call.id, call.function)
      } else if (message?.role === 'tool') {
        const call = calls.get(message.tool_call_id)
        results.push({ name: call?.name ?? '', arguments: call?.arguments ?? '', text: textOf(message) })
      }
    }
    return results
  }
}

/** The answer in the form that the prompt asks for; a short sentence if it asks for none. */
export function formatAnswer(context: SolverContext, answer: string): string {
  const prompt = `${context.system}\n${context.question}`
  if (/\banswer:/i.test(prompt)) return `Answer: ${answer}`
  if (prompt.includes('\\boxed')) return `\\boxed{${answer}}`
  if (/<answer>/i.test(prompt)) return `<answer>${answer}</answer>`
  if (prompt.includes('####')) return `#### ${answer}`
  return `The answer is ${answer}.`
}

interface Parameter {
  readonly name: string
  readonly type: string
  readonly isRequired: boolean
}

function parametersOf(tool: ToolDefinition): Parameter[] {
  const { properties, required } = tool.function.parameters
  if (typeof properties !== 'object' || properties === null) return []
  const needed: unknown[] = Array.isArray(required) ? required : []
  return Object.entries(properties).map(([name, schema]: [string, unknown]) => {
    const type = typeof schema === 'object' && schema !== null && 'type' in schema ? schema.type : undefined
    return { name, type: typeof type === 'string' ? type : 'any', isRequired: needed.includes(name) }
  })
}

export function parameterNamed(tool: ToolDefinition, name: string): Parameter | undefined {
  return parametersOf(tool).find((parameter) => parameter.name === name)
}

/** The first tool that is meant and needs one parameter of such a type, and nothing else. */
export function findTool(
  tools: readonly ToolDefinition[],
  types: readonly string[],
  isMeant: (name: string, parameter: string) => boolean,
): { readonly name: string; readonly parameter: string } | undefined {
  for (const tool of tools) {
    const { name } = tool.function
    const parameters = parametersOf(tool)
    const found = parameters.find((parameter) => types.includes(parameter.type))
    const needsMore = parameters.some((parameter) => parameter.isRequired && parameter !== found)
    if (found && !needsMore && isMeant(name, found.name)) return { name, parameter: found.name }
  }
  return undefined
}
