import { MillraceError } from '../errors/index.ts'
import { Scene, solve, synthesiseArguments, type Move } from './solvers/index.ts'
import type { ModelRequest } from '../inference/index.ts'

/** The next move, under the request's tool choice and up to its stop sequences. */
export function decide(request: ModelRequest, base: number, skill: number): Move | MillraceError {
  const { toolChoice = 'auto', messages, tools } = request
  const { stop } = request.sampling
  if (toolChoice === 'auto') return stopped(solve(new Scene({ messages, tools, skill, base })), stop)
  if (toolChoice === 'none') return stopped(solve(new Scene({ messages, tools: [], skill, base })), stop)
  const allowed =
    toolChoice === 'required' ? tools : tools.filter((candidate) => candidate.function.name === toolChoice.name)
  if (allowed.length === 0) {
    const wanted = typeof toolChoice === 'object' ? `the tool ${toolChoice.name}` : 'a tool'
    return new MillraceError('model_rejected', `tool_choice asks for ${wanted}, but the request does not offer it`, {
      data: { status: 400 },
    })
  }
  const scene = new Scene({ messages, tools: allowed, skill, base })
  const move = solve(scene)
  if (move.calls) return move
  const tool = scene.pick(allowed, 'tool')
  return { calls: [{ name: tool.function.name, arguments: synthesiseArguments(scene, tool) }] }
}

/** Ends the text before the first of the stop sequences. */
function stopped(move: Move, stop: readonly string[] | undefined): Move {
  if (!stop || move.text === undefined) return move
  let end = move.text.length
  for (const sequence of stop) {
    const at = sequence === '' ? -1 : move.text.indexOf(sequence)
    if (at >= 0) end = Math.min(end, at)
  }
  return { ...move, text: move.text.slice(0, end) }
}
