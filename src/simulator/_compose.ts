import { hash32 } from '../kit/index.ts'
import { draw } from './_draw.ts'
import { sloppyCall } from './_sloppy-call.ts'
import { TokenCounter, TokenList, writeReply, type Token } from './_token-stream.ts'
import type { AssistantMessage, FinishReason, ToolCall } from '../schema/index.ts'
import type { SolverReply } from './solvers/index.ts'

/** The reply of a solver as a message, before its length is limited. */
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

export interface Composed {
  readonly message: AssistantMessage
  readonly finishReason: FinishReason
  readonly outputTokens: number
  readonly reasoningTokens: number
  /** The tokens sampled before the limit cut them off; the tokens of a whole message follow from the message. */
  readonly cutTokens?: readonly Token[]
}

/** Ends the message after `maxTokens`, even in the middle of a word or of a tool call's arguments. */
export function limitMessage(message: AssistantMessage, maxTokens: number): Composed {
  const counter = new TokenCounter()
  writeReply(counter, message)
  // The end marker is sampled too.
  const whole = counter.count + 1
  if (whole <= maxTokens) {
    return {
      message,
      finishReason: message.tool_calls ? 'tool_calls' : 'stop',
      outputTokens: whole,
      reasoningTokens: reasoningTokens(message.reasoning_content),
    }
  }
  const kept = wholeTokens(message).slice(0, maxTokens)
  return {
    message: joinTokens(kept, message.tool_calls ?? []),
    finishReason: 'length',
    outputTokens: kept.length,
    reasoningTokens: kept.filter((token) => token.part === 'reasoning').length,
    cutTokens: kept,
  }
}

/** The tokens of a reply that was not cut off, with the end marker. */
export function wholeTokens(message: AssistantMessage): Token[] {
  const list = new TokenList()
  writeReply(list, message)
  list.marker('<|end|>')
  return list.tokens
}

function reasoningTokens(reasoning: string | undefined): number {
  if (reasoning === undefined) return 0
  const counter = new TokenCounter()
  counter.text(reasoning)
  return counter.count
}

interface WrittenCall {
  name: string
  arguments: string
}

/** The message that these tokens begin; `calls` are the calls of the whole message. */
export function joinTokens(tokens: readonly Token[], calls: readonly ToolCall[]): AssistantMessage {
  let content = ''
  let reasoning: string | undefined
  const written: WrittenCall[] = []
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
      ? { tool_calls: complete.map(({ id, type }, index) => ({ id, type, function: written[index] as WrittenCall })) }
      : {}),
  }
}
