import type { ContentPart, Json, JsonObject, Message } from '../../../src/schema/index.ts'
import { toolInput } from '../../../src/apis/tool-input.ts'

/** A conversation as a client of Chat Completions writes it: with nulls, and with parts where a string would do. */
export function chatBody(messages: readonly Message[]): JsonObject {
  return {
    model: 'm',
    messages: messages.map((message): JsonObject => {
      const plain: JsonObject = JSON.parse(JSON.stringify(message))
      if (message.role !== 'assistant') return { ...plain, content: chatParts(message.content) }
      return { refusal: null, tool_calls: null, function_call: null, audio: null, annotations: [], ...plain }
    }),
  }
}

/** A conversation as a client of Messages writes it: tool results in the user's turn, thinking and calls as blocks. */
export function messagesBody(messages: readonly Message[]): JsonObject {
  const turns: { role: string; content: Json[] }[] = []
  let system: Json = null
  for (const message of messages) {
    if (message.role === 'system' || message.role === 'developer') system = blocks(message.content)
    else if (message.role === 'assistant') turns.push({ role: 'assistant', content: spoken(message) })
    else {
      const last = turns.at(-1)
      const content = message.role === 'tool' ? [toolResult(message)] : blocks(message.content)
      // Anthropic takes the tool results of a turn, and what the user says after them, as one message.
      if (last?.role === 'user') last.content.push(...content)
      else turns.push({ role: 'user', content })
    }
  }
  return { model: 'm', max_tokens: 100, system, messages: turns }
}

function chatParts(content: string | readonly ContentPart[]): Json {
  if (typeof content === 'string') return content.length > 5 ? [{ type: 'text', text: content }] : content
  return content.map((part): Json => (part.type === 'other' ? part.value : part))
}

function blocks(content: string | readonly ContentPart[]): Json[] {
  if (typeof content === 'string') return [{ type: 'text', text: content, cache_control: { type: 'ephemeral' } }]
  return content.map((part): Json => {
    if (part.type === 'text') return part
    if (part.type === 'other') return part.value
    const [head = '', data = ''] = part.image_url.url.split(';base64,')
    return { type: 'image', source: { type: 'base64', media_type: head.replace('data:', ''), data } }
  })
}

function toolResult(message: Extract<Message, { role: 'tool' }>): Json {
  const isError = message.is_error ?? false
  return { type: 'tool_result', tool_use_id: message.tool_call_id, content: blocks(message.content), is_error: isError }
}

function spoken(message: Extract<Message, { role: 'assistant' }>): Json[] {
  const content: Json[] = []
  if (message.reasoning_content) content.push({ type: 'thinking', thinking: message.reasoning_content, signature: 's' })
  if (message.content) content.push({ type: 'text', text: message.content })
  for (const { id, function: called } of message.tool_calls ?? []) {
    content.push({ type: 'tool_use', id, name: called.name, input: toolInput(called.arguments) })
  }
  return content
}
