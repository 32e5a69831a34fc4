import type { ContentPart, Json, JsonObject, Message } from '../../../src/schema/index.ts'

/** A conversation as a client of Responses without ids writes it: instructions, and items for the rest. */
export function responsesBody(messages: readonly Message[]): JsonObject {
  const [first, ...rest] = messages
  const hasInstructions = first?.role === 'system' && typeof first.content === 'string'
  return {
    model: 'm',
    instructions: hasInstructions ? first.content : null,
    input: (hasInstructions ? rest : messages).flatMap(items),
  }
}

function items(message: Message): Json[] {
  if (message.role === 'tool') {
    return [{ type: 'function_call_output', call_id: message.tool_call_id, output: parts(message.content) }]
  }
  if (message.role !== 'assistant') return [{ role: message.role, content: parts(message.content) }]
  const { content, reasoning_content: reasoning, refusal, tool_calls: calls = [] } = message
  const written: Json[] = []
  if (reasoning) written.push({ type: 'reasoning', summary: [{ type: 'summary_text', text: reasoning }] })
  const spoken: Json[] = []
  if (content !== null) spoken.push({ type: 'output_text', text: content, annotations: [] })
  if (refusal !== undefined) spoken.push({ type: 'refusal', refusal })
  if (spoken.length > 0) written.push({ type: 'message', role: 'assistant', status: 'completed', content: spoken })
  for (const { id, function: called } of calls) {
    written.push({ type: 'function_call', call_id: id, name: called.name, arguments: called.arguments })
  }
  return written
}

function parts(content: string | readonly ContentPart[]): Json {
  if (typeof content === 'string') return content.length > 5 ? [{ type: 'input_text', text: content }] : content
  return content.map((part): Json => {
    if (part.type === 'text') return { type: 'input_text', text: part.text }
    if (part.type === 'other') return part.value
    return { type: 'input_image', image_url: part.image_url.url, detail: part.image_url.detail ?? 'auto' }
  })
}
