import type { Message } from '../schema/index.ts'
import { textOf } from '../schema/index.ts'

/** A conversation as one text, for a model that reads it instead of continuing it. Thoughts and images are left out. */
export function transcriptOf(messages: readonly Message[], isToolResult: (message: Message) => boolean): string {
  return messages.map((message) => `### ${headingOf(message, isToolResult)}\n${bodyOf(message)}`).join('\n\n')
}

function headingOf(message: Message, isToolResult: (message: Message) => boolean): string {
  if (isToolResult(message)) return message.role === 'tool' && message.is_error ? 'Failed tool call' : 'Tool result'
  return message.role === 'assistant' ? 'Agent' : message.role === 'user' ? 'User' : 'Instructions'
}

function bodyOf(message: Message): string {
  const lines = [textOf(message)]
  if (message.role === 'assistant') {
    for (const { function: call } of message.tool_calls ?? []) lines.push(`Calls ${call.name} with ${call.arguments}`)
  } else if (typeof message.content !== 'string' && message.content.some(({ type }) => type !== 'text')) {
    lines.push('(and something that is no text)')
  }
  return lines.filter((line) => line !== '').join('\n')
}
