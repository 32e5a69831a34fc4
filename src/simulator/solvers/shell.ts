import { jsonOrText } from '../../kit/index.ts'
import { isJsonObject, textOf, type ToolDefinition } from '../../schema/index.ts'
import { formatAnswer, parameterNamed, type Solver, type SolverContext, type SolverReply } from './solver.ts'
import { synthesiseArguments } from './synthesise.ts'

/** Tools that run a command, and what their parameter for it is called: Bash, exec_command, shell. */
const toolNames = /bash|shell|exec|terminal|command/i
const parameterNames = ['command', 'cmd', 'script', 'code', 'input'] as const

/** A line that asks for commands, "Run `make` and `make test`", or for calls, "Call `Read` with `{"path":"a"}`"; also as an item of a list. */
const request = /^\s*(?:[-*]\s+|\d+[.)]\s+)?(?:then\s+)?(run|call)\s+(`.*)$/gim
const command = /`([^`]+)`/g
const namedCall = /`([^`]+)`\s+with\s+`(\{[^`]*\})`/g

type Call = NonNullable<SolverReply['calls']>[number]

type Wish = { readonly command: string } | { readonly name: string; readonly json: string }

/** Runs the commands and calls that a user asks for, line by line. The reply is the last line of the last output. */
export const shell: Solver = {
  name: 'shell',
  solve(context) {
    const asked = context.messages.findLastIndex(
      (message) => message.role === 'user' && stepsIn(textOf(message)).length > 0,
    )
    const message = context.messages[asked]
    if (!message) return undefined
    const results = context.messages.slice(asked).filter(({ role }) => role === 'tool')
    let before = 0
    for (const step of stepsIn(textOf(message))) {
      const open = step.slice(Math.max(0, results.length - before))
      const calls = open.map((wish) => callOf(context, wish)).filter((call) => call !== undefined)
      if (calls.length < open.length) return undefined
      if (calls.length > 0) return { calls }
      before += step.length
    }
    const last = results.at(-1)
    return { text: formatAnswer(context, last ? lastLine(textOf(last)) : 'done') }
  },
}

function stepsIn(text: string): Wish[][] {
  return [...text.matchAll(request)]
    .map(([, verb = '', rest = '']) => (verb.toLowerCase() === 'run' ? commandsIn(rest) : callsIn(rest)))
    .filter((step) => step.length > 0)
}

function commandsIn(text: string): Wish[] {
  return [...text.matchAll(command)].map(([, each = '']) => ({ command: each }))
}

function callsIn(text: string): Wish[] {
  return [...text.matchAll(namedCall)].map(([, name = '', json = '']) => ({ name, json }))
}

/** Undefined if there is no tool for it, or its arguments are no JSON. */
function callOf(context: SolverContext, wish: Wish): Call | undefined {
  if ('json' in wish) {
    const tool = context.tools.find((each) => each.function.name === wish.name)
    const given = jsonOrText(wish.json)
    return tool && isJsonObject(given) ? { name: wish.name, arguments: given } : undefined
  }
  for (const tool of context.tools) {
    const parameter = toolNames.test(tool.function.name) ? commandParameter(tool) : undefined
    if (parameter === undefined) continue
    const others = synthesiseArguments(context, tool)
    return { name: tool.function.name, arguments: { ...others, [parameter]: wish.command } }
  }
  return undefined
}

function commandParameter(tool: ToolDefinition): string | undefined {
  return parameterNames.find((name) => parameterNamed(tool, name)?.type === 'string')
}

function lastLine(text: string): string {
  return text.trimEnd().split('\n').at(-1) ?? ''
}
