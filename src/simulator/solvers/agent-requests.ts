import { isJsonObject, type Json, type Message, textOf, type ToolDefinition } from '../../schema/index.ts'
import { jsonOrText } from '../../kit/index.ts'
import type { Solver, SolverContext } from './solver.ts'

// What the built-in agents ask of a model beside the task itself: see src/agents.

const planRequest = 'Before you answer, plan the tool calls'

/** Plans the calls that it would make at once. */
export const planner: Solver = {
  name: 'planner',
  solve(context, solveOther) {
    const { messages } = context
    const place = messages.findIndex((message) => message.role === 'user' && textOf(message).includes(planRequest))
    const asked = messages[place]
    if (!asked) return undefined
    const [task = '', request = ''] = textOf(asked).split(planRequest)
    const before: readonly Message[] = [...messages.slice(0, place), { role: 'user', content: task.trim() }]
    const { calls = [] } = solveOther(context.with({ messages: before, tools: describedTools(request) }))
    const plan = calls.map(({ name, arguments: args }, index) => ({ id: `E${index + 1}`, tool: name, arguments: args }))
    return { text: JSON.stringify(plan) }
  },
}

function describedTools(text: string): ToolDefinition[] {
  return text.split('\n').flatMap((line): ToolDefinition[] => {
    const tool = line.startsWith('{') ? (jsonOrText(line) as Json) : undefined
    if (!isJsonObject(tool) || typeof tool['name'] !== 'string') return []
    const parameters = isJsonObject(tool['parameters']) ? tool['parameters'] : {}
    return [{ type: 'function', function: { name: tool['name'], parameters } }]
  })
}

/** Plays a user who says what the persona wants, and leaves with the first answer. A wrong decision doubts it. */
export const user: Solver = {
  name: 'user',
  solve(context) {
    const stop = /^You play the user\b[\s\S]*\breply with (\S+)/.exec(context.system)?.[1]
    if (stop === undefined) return undefined
    const hasSpoken = context.messages.some(({ role }) => role === 'assistant')
    const persona = /<persona>\s*([\s\S]*?)\s*<\/persona>/.exec(context.system)?.[1] ?? ''
    if (!hasSpoken) return { text: persona === '' ? 'I need help.' : persona }
    return { text: context.isRight ? `Thank you. ${stop}` : 'Are you sure?' }
  },
}

const doubt = /\b(?:again|revise|improve|wrong|mistake|incorrect|sure|reconsider)\b/i
const maxEarlier = 8

/** A message that asks for a better answer has the question in an earlier one. */
export function* questionsIn(context: SolverContext): Generator<SolverContext, void, void> {
  yield context
  if (!doubt.test(context.question)) return
  for (const question of context.earlierQuestions.slice(0, maxEarlier)) yield context.with({ question })
}
