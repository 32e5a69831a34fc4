import { hash32 } from '../../kit/index.ts'
import { textOf, type AssistantMessage, type ContentPart, type Json, type Message } from '../../schema/index.ts'

/** A chat message as items of a Responses request; an assistant's may become several. */
export function inputItems(message: Message, sendReasoning: boolean): Json[] {
  if (message.role === 'assistant') return assistantItems(message, sendReasoning)
  const content = inputContent(message.content)
  if (message.role === 'tool') return [{ type: 'function_call_output', call_id: message.tool_call_id, output: content }]
  return [{ role: message.role, content }]
}

function assistantItems(message: AssistantMessage, sendReasoning: boolean): Json[] {
  const items: Json[] = []
  if (sendReasoning && message.reasoning_content !== undefined) {
    items.push({
      type: 'reasoning',
      // Servers insist on an id, and look nothing up by it when nothing is stored. The same text gives the same bytes.
      id: `rs_${hash32(message.reasoning_content).toString(16)}`,
      summary: [{ type: 'summary_text', text: message.reasoning_content }],
    })
  }
  for (const { api, value } of message.others ?? []) if (api === 'responses') items.push(value)
  const text = textOf(message) || message.refusal
  if (text !== undefined && text !== '') items.push({ role: 'assistant', content: text })
  for (const call of message.tool_calls ?? []) {
    items.push({
      type: 'function_call',
      call_id: call.id,
      name: call.function.name,
      arguments: call.function.arguments,
    })
  }
  return items
}

function inputContent(content: string | readonly ContentPart[]): Json {
  if (typeof content === 'string') return content
  return content.map((part): Json => {
    if (part.type === 'text') return { type: 'input_text', text: part.text }
    if (part.type === 'other') return part.value
    return { type: 'input_image', image_url: part.image_url.url, detail: part.image_url.detail ?? 'auto' }
  })
}
