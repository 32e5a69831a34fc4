import { formatAnswer } from './_answer-format.ts'
import { synthesiseArguments } from './_synthesise.ts'
import type { Solver } from './solver.ts'

/** For everything else: calls one of the tools, if there are any, and then says something about the result. */
export const generic = {
  name: 'generic',
  solve(context) {
    const result = context.results().at(-1)
    if (!result && context.tools.length > 0) {
      const tool = context.pick(context.tools, 'tool')
      return { calls: [{ name: tool.function.name, arguments: synthesiseArguments(context, tool) }] }
    }
    if (result) return { text: formatAnswer(context, shorten(result.text)) }
    return { text: formatAnswer(context, context.pick(replies, 'reply')) }
  },
} as const satisfies Solver

const replies = ['yes', 'no', 'it depends', 'not known', 'the first one', 'the second one'] as const

function shorten(text: string): string {
  const line = text.split('\n', 1)[0] ?? ''
  return line.length > 120 ? `${line.slice(0, 120)}…` : line
}
