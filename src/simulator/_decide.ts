import { MillraceError } from '../errors/index.ts'
import type { ToolDefinition } from '../schema/index.ts'
import type { SimulatorRequest } from './_door.ts'
import { Scene, solve, synthesiseArguments, synthesiseJson, type Move } from './solvers/index.ts'

/** The next move, under the request's tool choice and format and up to its stop sequences. */
export function decide(request: SimulatorRequest, base: number, skill: number): Move | MillraceError {
  const { toolChoice = 'auto', messages } = request
  const mustCall = toolChoice !== 'auto' && toolChoice !== 'none'
  const tools = allowedTools(request)
  if (mustCall && tools.length === 0) {
    const wanted = typeof toolChoice === 'object' ? `the tool ${toolChoice.name}` : 'a tool'
    return new MillraceError('model_rejected', `tool_choice asks for ${wanted}, but the request does not offer it`, {
      data: { status: 400 },
    })
  }
  const scene = new Scene({ messages, tools, skill, base })
  const move = solve(scene)
  if (move.calls) return request.parallelToolCalls === false ? { ...move, calls: move.calls.slice(0, 1) } : move
  if (!mustCall) return { text: stopped(formatted(move.text ?? '', request, scene), request.sampling.stop) }
  const tool = scene.pick(tools, 'tool')
  return { calls: [{ name: tool.function.name, arguments: synthesiseArguments(scene, tool) }] }
}

function allowedTools({ toolChoice, tools }: SimulatorRequest): readonly ToolDefinition[] {
  if (toolChoice === 'none') return []
  return typeof toolChoice === 'object' ? tools.filter((tool) => tool.function.name === toolChoice.name) : tools
}

/** The text itself, or JSON of the form that was asked for. */
function formatted(text: string, { responseFormat }: SimulatorRequest, scene: Scene): string {
  if (!responseFormat) return text
  const value = responseFormat.kind === 'json_object' ? { answer: text } : synthesiseJson(scene, responseFormat.schema)
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
