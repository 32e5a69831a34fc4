import { MillraceError } from '../../errors/index.ts'
import { hash32 } from '../../kit/index.ts'
import type { AssistantMessage, FinishReason, JsonObject, ToolCall, ToolDefinition } from '../../schema/index.ts'
import { countPieces, type SimulatorRequest, type Token, TokenCounter, words, writeReply } from './tokens.ts'
import { solve, SolverContext, type SolverReply, synthesiseArguments, synthesiseJson } from '../solvers/index.ts'
import { draw } from './draw.ts'

export function composeMessage(
  solved: SolverReply,
  style: { base: number; sloppiness: number; reasoning: string | undefined },
): AssistantMessage {
  const content = solved.text ?? null
  const calls = solved.calls?.map((call, index): ToolCall => {
    const isSloppy = style.sloppiness > 0 && draw(style.base, 'sloppy', index) < style.sloppiness
    const written = isSloppy
      ? sloppyCall(call, draw(style.base, 'slip', index))
      : { name: call.name, arguments: JSON.stringify(call.arguments) }
    const id = `call_${hash32(style.base, 'call', index).toString(16).padStart(8, '0')}`
    return { id, type: 'function', function: written }
  })
  return {
    role: 'assistant',
    content,
    ...(style.reasoning === undefined ? {} : { reasoning_content: style.reasoning }),
    ...(calls ? { tool_calls: calls } : {}),
  }
}

interface Composed {
  readonly message: AssistantMessage
  readonly finishReason: FinishReason
  readonly outputTokens: number
  readonly reasoningTokens: number
  /** The sampled tokens, if they had to be made: those that a limit cut off, and those that do not follow from the message. */
  readonly tokens?: readonly Token[]
}

/** Ends the message after `maxTokens`, even in the middle of a word or of a tool call's arguments. */
export function limitMessage(
  message: AssistantMessage,
  {
    maxTokens,
    sampled,
    begun = 0,
  }: {
    readonly maxTokens: number
    readonly sampled?: readonly Token[] | undefined
    /** How many of the sampled tokens are in the prompt already. */
    readonly begun?: number | undefined
  },
): Composed {
  // The token that ends a reply is always left to sample.
  const rest = begun > 0 ? sampled?.slice(Math.min(begun, sampled.length - 1)) : sampled
  // Words need not be listed to be counted.
  const outputTokens = rest?.length ?? countReply(message)
  const finishReason = outputTokens > maxTokens ? 'length' : message.tool_calls ? 'tool_calls' : 'stop'
  if (outputTokens <= maxTokens && rest === sampled) {
    return {
      message,
      finishReason,
      outputTokens,
      reasoningTokens: sampled ? reasoningIn(sampled) : countPieces(message.reasoning_content ?? ''),
      ...(sampled && { tokens: sampled }),
    }
  }
  const kept = (rest ?? words.sample(message, 0)).slice(0, maxTokens)
  return {
    message: joinTokens(kept, message.tool_calls ?? []),
    finishReason,
    outputTokens: kept.length,
    reasoningTokens: reasoningIn(kept),
    tokens: kept,
  }
}

function countReply(message: AssistantMessage): number {
  const counter = new TokenCounter()
  writeReply(counter, message)
  // The end marker is sampled too.
  return counter.count + 1
}

function reasoningIn(tokens: readonly Token[]): number {
  return tokens.filter(({ part }) => part === 'reasoning').length
}

/** The message that these tokens begin; `calls` are the calls of the whole message. */
export function joinTokens(tokens: readonly Token[], calls: readonly ToolCall[]): AssistantMessage {
  let content = ''
  let reasoning: string | undefined
  const written: { name: string; arguments: string }[] = []
  for (const { part, piece, call } of tokens) {
    if (part === 'content') content += piece
    else if (part === 'reasoning') reasoning = (reasoning ?? '') + piece
    else if (call >= 0) {
      const target = (written[call] ??= { name: '', arguments: '' })
      if (part === 'name') target.name += piece
      else if (part === 'arguments') target.arguments += piece
    }
  }
  // A call whose name is not complete is left out: no engine's parser would report it.
  const complete = calls.filter((call, index) => written[index]?.name === call.function.name)
  return {
    role: 'assistant',
    content: content === '' && complete.length > 0 ? null : content,
    ...(reasoning === undefined ? {} : { reasoning_content: reasoning }),
    ...(complete.length > 0
      ? {
          tool_calls: complete.map(({ id, type, function: called }, index) => ({
            id,
            type,
            function: written[index] ?? called,
          })),
        }
      : {}),
  }
}

export function decide(request: SimulatorRequest, base: number, skill: number): SolverReply | MillraceError {
  const { toolChoice = 'auto', messages } = request
  const mustCall = toolChoice !== 'auto' && toolChoice !== 'none'
  const tools = allowedTools(request)
  if (mustCall && tools.length === 0) {
    const wanted = typeof toolChoice === 'object' ? `the tool ${toolChoice.name}` : 'a tool'
    return new MillraceError('model_rejected', `tool_choice requires ${wanted}, but the request does not offer it`, {
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

function formatted(text: string, { responseFormat }: SimulatorRequest, context: SolverContext): string {
  if (!responseFormat) return text
  const value =
    responseFormat.kind === 'json_object' ? { answer: text } : synthesiseJson(context, responseFormat.schema)
  return JSON.stringify(value)
}

function stopped(text: string, stop: readonly string[] = []): string {
  let end = text.length
  for (const sequence of stop) {
    const at = sequence === '' ? -1 : text.indexOf(sequence)
    if (at >= 0) end = Math.min(end, at)
  }
  return text.slice(0, end)
}

/** Mistakes that models make in the arguments of tool calls; each leaves a call that a strict reader must refuse. */
const argumentSlips: readonly ((args: JsonObject) => string)[] = [
  // A field is missing.
  (args) => JSON.stringify(Object.fromEntries(Object.entries(args).slice(1))),
  // A value has another type.
  (args) =>
    JSON.stringify(
      Object.fromEntries(Object.entries(args).map(([key, value], index) => [key, index === 0 ? { value } : value])),
    ),
  // The text is cut short.
  (args) => JSON.stringify(args).slice(0, -1),
  // It is written as Python would write it.
  (args) =>
    `{${Object.entries(args)
      .map(([key, value]) => `'${key}': '${typeof value === 'string' ? value : JSON.stringify(value)}'`)
      .join(', ')}}`,
  // It is fenced.
  (args) => `\`\`\`json\n${JSON.stringify(args)}\n\`\`\``,
]

function sloppyCall({ name, arguments: args }: SolverCall, luck: number): ToolCall['function'] {
  const slip = argumentSlips[Math.floor(luck * (argumentSlips.length + 1)) - 1]
  // Without arguments there is no field to get wrong, and `{}` in any form might pass.
  if (slip && Object.keys(args).length > 0) return { name, arguments: slip(args) }
  const misspelt = name.length > 2 ? `${name.slice(0, -2)}${name.at(-1)}${name.at(-2)}_` : `${name}_`
  return { name: misspelt, arguments: JSON.stringify(args) }
}

type SolverCall = NonNullable<SolverReply['calls']>[number]
