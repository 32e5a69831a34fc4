import { hash32 } from '../../kit/index.ts'
import {
  isJsonObject,
  textOf,
  type AssistantMessage,
  type ContentPart,
  type Json,
  type Message,
} from '../../schema/index.ts'
import { foreignPart, type Wording } from './_unsayable.ts'

/** A chat message as items of a Responses request; an assistant's may become several. */
export function inputItems(message: Message, sendReasoning: boolean, wording: Wording): Json[] {
  if (message.role === 'assistant') return assistantItems(message, sendReasoning)
  const item = ownItem(message.content)
  if (item !== undefined) return [item]
  const content = inputContent(message.content, wording)
  if (message.role === 'tool') return [{ type: 'function_call_output', call_id: message.tool_call_id, output: content }]
  return [{ role: message.role, content }]
}

/**
 * An item that Chat has no words for is kept as a message with one part. Parts of this API's own messages have `input_`
 * types.
 */
function ownItem(content: string | readonly ContentPart[]): Json | undefined {
  if (typeof content === 'string' || content.length !== 1) return undefined
  const [part] = content
  if (part?.type !== 'other' || part.api !== 'responses' || !isJsonObject(part.value)) return undefined
  const { type } = part.value
  return typeof type === 'string' && !type.startsWith('input_') ? part.value : undefined
}

function assistantItems(message: AssistantMessage, sendReasoning: boolean): Json[] {
  const items: Json[] = []
  if (sendReasoning && message.reasoning_content !== undefined) {
    items.push({
      type: 'reasoning',
      // Servers insist on an id, though with `store: false` they look nothing up by it. Equal text gives equal bytes.
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

function inputContent(content: string | readonly ContentPart[], wording: Wording): Json {
  if (typeof content === 'string') return content
  return content.map((part): Json => {
    if (part.type === 'text') return { type: 'input_text', text: part.text }
    if (part.type === 'image_url') {
      return { type: 'input_image', image_url: part.image_url.url, detail: part.image_url.detail ?? 'auto' }
    }
    if (part.api !== 'responses') throw foreignPart(wording, part)
    return part.value
  })
}
