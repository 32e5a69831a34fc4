import { textOf, type ToolDefinition } from '../../schema/index.ts'
import { formatAnswer } from './_answer-format.ts'
import { synthesiseArguments } from './_synthesise.ts'
import { parameterNamed } from './_tool-shape.ts'
import type { SolverContext } from './solver-context.ts'
import type { Solver } from './solver.ts'

/** Tools that run a command, and what their parameter for it is called: Bash, exec_command, shell. */
const toolNames = /bash|shell|exec|terminal|command/i
const parameterNames = ['command', 'cmd', 'script', 'code', 'input'] as const

/** A line that asks for commands: "Run `make` and `make test`", also as an item of a list. */
const request = /^\s*(?:[-*]\s+|\d+[.)]\s+)?(?:then\s+)?run\s+(`.*)$/gim
const command = /`([^`]+)`/g

/**
 * Runs the commands that a user asks for, with any tool that can. The commands of one line are called at once, and those of
 * the next line when they have been answered. The reply is the last line of the last output.
 */
export const shell: Solver = {
  name: 'shell',
  solve(context) {
    const tool = context.tools.find(
      (each) => toolNames.test(each.function.name) && commandParameter(each) !== undefined,
    )
    if (!tool) return undefined
    const asked = context.messages.findLastIndex(
      (message) => message.role === 'user' && stepsIn(textOf(message)).length > 0,
    )
    const message = context.messages[asked]
    if (!message) return undefined
    const results = context.messages.slice(asked).filter(({ role }) => role === 'tool')
    let before = 0
    for (const step of stepsIn(textOf(message))) {
      const open = step.slice(Math.max(0, results.length - before))
      if (open.length > 0) return { calls: open.map((text) => callOf(context, tool, text)) }
      before += step.length
    }
    const last = results.at(-1)
    return { text: formatAnswer(context, last ? lastLine(textOf(last)) : 'done') }
  },
}

function stepsIn(text: string): string[][] {
  return [...text.matchAll(request)].map(([, commands = '']) =>
    [...commands.matchAll(command)].map(([, each = '']) => each),
  )
}

function callOf(context: SolverContext, tool: ToolDefinition, text: string) {
  const parameter = commandParameter(tool) ?? ''
  return { name: tool.function.name, arguments: { ...synthesiseArguments(context, tool), [parameter]: text } }
}

function commandParameter(tool: ToolDefinition): string | undefined {
  return parameterNames.find((name) => parameterNamed(tool, name)?.type === 'string')
}

function lastLine(text: string): string {
  return text.trimEnd().split('\n').at(-1) ?? ''
}
