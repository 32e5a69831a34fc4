import { MillraceError } from '../errors/index.ts'
import type { ToolDefinition } from '../schema/index.ts'
import type { SimulatorRequest } from './_simulated-api.ts'
import { SolverContext, solve, synthesiseArguments, synthesiseJson, type SolverReply } from './solvers/index.ts'

/** What to reply, under the request's tool choice and format and up to its stop sequences. */
export function decide(request: SimulatorRequest, base: number, skill: number): SolverReply | MillraceError {
  const { toolChoice = 'auto', messages } = request
  const mustCall = toolChoice !== 'auto' && toolChoice !== 'none'
  const tools = allowedTools(request)
  if (mustCall && tools.length === 0) {
    const wanted = typeof toolChoice === 'object' ? `the tool ${toolChoice.name}` : 'a tool'
    return new MillraceError('model_rejected', `tool_choice asks for ${wanted}, but the request does not offer it`, {
      data: { status: 400 },
    })
  }
  const context = new SolverContext({ messages, tools, skill, base })
  const solved = solve(context)
  if (solved.calls) return request.parallelToolCalls === false ? { ...solved, calls: solved.calls.slice(0, 1) } : solved
  if (!mustCall) return { text: stopped(formatted(solved.text ?? '', request, context), request.sampling.stop) }
  const tool = context.pick(tools, 'tool')
  return { calls: [{ name: tool.function.name, arguments: synthesiseArguments(context, tool) }] }
}

function allowedTools({ toolChoice, tools }: SimulatorRequest): readonly ToolDefinition[] {
  if (toolChoice === 'none') return []
  return typeof toolChoice === 'object' ? tools.filter((tool) => tool.function.name === toolChoice.name) : tools
}

/** The text itself, or JSON of the form that was asked for. */
function formatted(text: string, { responseFormat }: SimulatorRequest, context: SolverContext): string {
  if (!responseFormat) return text
  const value =
    responseFormat.kind === 'json_object' ? { answer: text } : synthesiseJson(context, responseFormat.schema)
  return JSON.stringify(value)
}

/** Ends the text before the first of the stop sequences. */
function stopped(text: string, stop: readonly string[] = []): string {
  let end = text.length
  for (const sequence of stop) {
    const at = sequence === '' ? -1 : text.indexOf(sequence)
    if (at >= 0) end = Math.min(end, at)
  }
  return text.slice(0, end)
}
