import { isJsonList, isJsonObject, type Json, type JsonObject } from '../schema/index.ts'
import type { EventList } from './_responses-stream-items.ts'

/** By type of call: the field with its input, and the name of the events that bring it. */
const written: ReadonlyMap<Json | undefined, { readonly field: string; readonly event: string }> = new Map([
  ['function_call', { field: 'arguments', event: 'function_call_arguments' }],
  ['custom_tool_call', { field: 'input', event: 'custom_tool_call_input' }],
  ['mcp_call', { field: 'arguments', event: 'mcp_call_arguments' }],
])

/** Adds the events of a whole item. An item of an unknown kind only begins and ends. */
export function repeatItem(events: EventList, item: JsonObject, output_index: number): void {
  const { id: item_id, type } = item
  const place = { item_id, output_index }
  const call = written.get(type)
  events.add('response.output_item.added', { output_index, item: begun(item, call?.field) })
  if (type === 'message') repeatParts(events, item['content'], place)
  if (type === 'reasoning') repeatReasoning(events, item, place)
  if (call) {
    const text = item[call.field]
    events.add(`response.${call.event}.delta`, { ...place, delta: text })
    events.add(`response.${call.event}.done`, { ...place, [call.field]: text })
  }
  events.add('response.output_item.done', { output_index, item })
}

function begun(item: JsonObject, field: string | undefined): JsonObject {
  const { type, status } = item
  return {
    ...item,
    ...(status !== undefined && { status: 'in_progress' }),
    ...(type === 'message' && { content: [] }),
    ...(type === 'reasoning' && { summary: [], ...(item['content'] !== undefined && { content: [] }) }),
    ...(field !== undefined && { [field]: '' }),
  }
}

function repeatParts(events: EventList, content: Json | undefined, place: object): void {
  for (const [content_index, part] of partsOf(content)) {
    const at = { ...place, content_index }
    const { type, text, refusal, annotations } = part
    const isRefusal = type === 'refusal'
    const empty = isRefusal ? { refusal: '' } : { text: '', annotations: [] }
    events.add('response.content_part.added', { ...at, part: { ...part, ...empty } })
    if (isRefusal) {
      events.add('response.refusal.delta', { ...at, delta: refusal })
      events.add('response.refusal.done', { ...at, refusal })
    } else if (type === 'output_text') {
      events.add('response.output_text.delta', { ...at, delta: text, logprobs: [] })
      for (const [annotation_index, annotation] of partsOf(annotations)) {
        events.add('response.output_text.annotation.added', { ...at, annotation_index, annotation })
      }
      events.add('response.output_text.done', { ...at, text, logprobs: [] })
    }
    events.add('response.content_part.done', { ...at, part })
  }
}

function repeatReasoning(events: EventList, { summary, content }: JsonObject, place: object): void {
  for (const [summary_index, part] of partsOf(summary)) {
    const at = { ...place, summary_index }
    events.add('response.reasoning_summary_part.added', { ...at, part: { ...part, text: '' } })
    events.add('response.reasoning_summary_text.delta', { ...at, delta: part['text'] })
    events.add('response.reasoning_summary_text.done', { ...at, text: part['text'] })
    events.add('response.reasoning_summary_part.done', { ...at, part })
  }
  for (const [content_index, part] of partsOf(content)) {
    const at = { ...place, content_index }
    events.add('response.reasoning_text.delta', { ...at, delta: part['text'] })
    events.add('response.reasoning_text.done', { ...at, text: part['text'] })
  }
}

function partsOf(value: Json | undefined): [number, JsonObject][] {
  return isJsonList(value) ? [...value.filter((part) => isJsonObject(part)).entries()] : []
}
