import type { ToolDefinition } from '../../schema/index.ts'
import { soleParameter } from './_tool-shape.ts'
import type { SolverContext } from './solver-context.ts'
import type { Solver } from './solver.ts'

/** For a hidden number and a tool to guess it with: halves the range that the earlier answers leave. */
export const guessNumber: Solver = {
  name: 'guess-number',
  solve(context) {
    const tool = findGuessTool(context.tools)
    if (!tool) return undefined
    const range = readRange(context)
    const left = narrow(context, range)
    if (left.found !== undefined) return { text: `The number is ${left.found}.` }
    const middle = Math.floor((left.low + left.high) / 2)
    if (context.isRight) return { calls: [{ name: tool.name, arguments: { [tool.parameter]: middle } }] }
    // A blunder is to stop and claim a number, or to guess without regard to the earlier answers.
    const anywhere = range.low + Math.floor(context.draw('anywhere') * (range.high - range.low + 1))
    if (context.draw('blunder') < 0.3) return { text: `I think the number is ${anywhere}.` }
    return { calls: [{ name: tool.name, arguments: { [tool.parameter]: anywhere } }] }
  },
}

function findGuessTool(tools: readonly ToolDefinition[]): { name: string; parameter: string } | undefined {
  for (const tool of tools) {
    if (!/guess/i.test(tool.function.name)) continue
    const parameter = soleParameter(tool, ['integer', 'number'])
    if (parameter !== undefined) return { name: tool.function.name, parameter }
  }
  return undefined
}

interface Range {
  readonly low: number
  readonly high: number
}

/** The range in the first message that states one; 1 to 100 otherwise. */
function readRange(context: SolverContext): Range {
  for (const message of context.messages) {
    if (message.role === 'assistant' || message.role === 'tool' || typeof message.content !== 'string') continue
    const stated = /\b(?:between|from) (-?\d+) (?:and|to) (-?\d+)/i.exec(message.content)
    if (stated) return { low: Number(stated[1]), high: Number(stated[2]) }
  }
  return { low: 1, high: 100 }
}

/** The range that the answers so far leave. Errors of the tool do not change it. */
function narrow(context: SolverContext, range: Range): Range & { readonly found?: number } {
  let { low, high } = range
  for (const result of context.results('start')) {
    const guess = Number(/-?\d+/.exec(result.arguments)?.[0])
    if (Number.isNaN(guess)) continue
    if (/\b(?:correct|found it|that is it)\b/i.test(result.text)) return { low, high, found: guess }
    if (/\b(?:higher|too low)\b/i.test(result.text)) low = Math.max(low, guess + 1)
    else if (/\b(?:lower|too high)\b/i.test(result.text)) high = Math.min(high, guess - 1)
  }
  return low <= high ? { low, high } : range
}
