import { isJsonObject, type Json, type Message, textOf, type ToolDefinition } from '../../schema/index.ts'
import { jsonOrText } from '../../kit/index.ts'
import type { Solver, SolverContext, SolverReply } from './solver.ts'

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

/** Answers the request itself, and objects to an answer that differs from its own. */
export const critic: Solver = {
  name: 'critic',
  solve(context, solveOther) {
    if (!context.system.startsWith('You review the work of an assistant.')) return undefined
    const own = ownAnswer(context, solveOther)
    if (isSame(own, tagged(context.question, 'answer')[0] ?? '')) return { text: 'APPROVED' }
    return { text: 'The answer is wrong: work it out again, step by step.' }
  },
}

/** Answers the request itself, and takes the first answer that is the same; if none is, one by chance. */
export const selector: Solver = {
  name: 'selector',
  solve(context, solveOther) {
    if (!context.system.startsWith('You choose the best of several answers')) return undefined
    const own = ownAnswer(context, solveOther)
    const answers = tagged(context.question, 'answer')
    const found = answers.findIndex((answer) => isSame(own, answer))
    const chance = Math.floor(context.draw('selection') * answers.length)
    return { text: `I would give the same answer.\nBest: ${(found === -1 ? chance : found) + 1}` }
  },
}

/** Answers the request itself: its own answer is as good as what it could make of the others. */
export const merger: Solver = {
  name: 'merger',
  solve(context, solveOther) {
    if (!context.system.startsWith('You merge several answers')) return undefined
    return { text: ownAnswer(context, solveOther) }
  },
}

function ownAnswer(context: SolverContext, solveOther: (context: SolverContext) => SolverReply): string {
  const conversation = tagged(context.question, 'conversation')[0] ?? ''
  const messages = [...conversation.matchAll(/^<(system|user)>\n([\s\S]*?)\n<\/\1>$/gm)].map(
    ([, role, content = '']): Message => ({ role: role === 'system' ? 'system' : 'user', content }),
  )
  return solveOther(context.with({ messages, tools: [] })).text ?? ''
}

function tagged(text: string, tag: string): string[] {
  const pattern = new RegExp(`^<${tag}\\b[^>\\n]*>\\n([\\s\\S]*?)\\n</${tag}>$`, 'gm')
  return Array.from(text.matchAll(pattern), ([, inside = '']) => inside)
}

/** By the last number if the solver's own answer has one: the same number is said in many ways. */
function isSame(own: string, other: string): boolean {
  const [number, theirs] = [own, other].map((text) => text.match(/-?\d+(?:\.\d+)?/g)?.at(-1))
  return number === undefined ? own.trim() === other.trim() : Number(number) === Number(theirs)
}

const doubt = /\b(?:again|revise|improve|wrong|mistake|incorrect|sure|reconsider|not right)\b/i
const maxEarlier = 8

/** A message that asks for a better answer has the question in an earlier one. */
export function* questionsIn(context: SolverContext): Generator<SolverContext, void, void> {
  yield context
  if (!doubt.test(context.question)) return
  for (const question of context.earlierQuestions.slice(0, maxEarlier)) yield context.with({ question })
}
