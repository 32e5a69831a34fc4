import { isJson } from '../../kit/index.ts'
import { isJsonList, isJsonObject, type Json, type JsonObject } from '../../schema/index.ts'
import type { ServerSentEvent } from '../server-side.ts'
import type { ClientTool } from './tool-names.ts'
import {
  callItem,
  type ItemStatus,
  messageItem,
  type OutputItem,
  reasoningItem,
  refusalPart,
  summaryPart,
  textPart,
} from './write-reply.ts'

export class EventList {
  #events: ServerSentEvent[] = []
  #sequence = 0

  add(type: string, fields: object): void {
    this.#events.push({ name: type, data: { type, sequence_number: this.#sequence, ...fields } })
    this.#sequence += 1
  }

  /** How many events were added: the number of the next one. */
  get count(): number {
    return this.#sequence
  }

  take(): ServerSentEvent[] {
    const events = this.#events
    this.#events = []
    return events
  }
}

export interface ItemPosition {
  readonly item_id: string
  readonly output_index: number
}

/** An item that is being written: creating it opens it, and `end` returns the finished item. */
export interface StreamedItem {
  readonly position: ItemPosition
  end(status: ItemStatus): OutputItem
}

export class StreamedReasoning implements StreamedItem {
  readonly position: ItemPosition
  readonly #events: EventList
  readonly #isEncrypted: boolean
  #text = ''

  constructor(events: EventList, position: ItemPosition, isEncrypted: boolean) {
    this.#events = events
    this.position = position
    this.#isEncrypted = isEncrypted
    const { item_id: id, output_index } = position
    events.add('response.output_item.added', { output_index, item: { id, type: 'reasoning', summary: [] } })
    events.add('response.reasoning_summary_part.added', { ...position, summary_index: 0, part: summaryPart('') })
  }

  add(delta: string): void {
    this.#text += delta
    this.#events.add('response.reasoning_summary_text.delta', { ...this.position, summary_index: 0, delta })
  }

  end(): OutputItem {
    const text = this.#text
    const part = { ...this.position, summary_index: 0 }
    this.#events.add('response.reasoning_summary_text.done', { ...part, text })
    this.#events.add('response.reasoning_summary_part.done', { ...part, part: summaryPart(text) })
    return ended(this.#events, this.position, reasoningItem(this.position.item_id, text, this.#isEncrypted))
  }
}

/** A message that is being written. Text and refusal are parts of one message. */
export class StreamedMessage implements StreamedItem {
  readonly position: ItemPosition
  readonly #events: EventList
  readonly #parts: object[] = []
  #open: 'output_text' | 'refusal' | undefined
  #text = ''

  constructor(events: EventList, position: ItemPosition) {
    this.#events = events
    this.position = position
    const item = messageItem(position.item_id, 'in_progress', [])
    events.add('response.output_item.added', { output_index: position.output_index, item })
  }

  add(kind: 'output_text' | 'refusal', delta: string): void {
    if (this.#open !== kind) {
      this.#endPart()
      this.#open = kind
      this.#events.add('response.content_part.added', { ...this.#partPosition(), part: partOf(kind, '') })
    }
    this.#text += delta
    if (delta === '') return
    const fields = kind === 'output_text' ? { delta, logprobs: [] } : { delta }
    this.#events.add(`response.${kind}.delta`, { ...this.#partPosition(), ...fields })
  }

  end(status: ItemStatus): OutputItem {
    this.#endPart()
    return ended(this.#events, this.position, messageItem(this.position.item_id, status, this.#parts))
  }

  #endPart(): void {
    const kind = this.#open
    if (kind === undefined) return
    const text = this.#text
    const part = partOf(kind, text)
    const fields = kind === 'output_text' ? { text, logprobs: [] } : { refusal: text }
    this.#events.add(`response.${kind}.done`, { ...this.#partPosition(), ...fields })
    this.#events.add('response.content_part.done', { ...this.#partPosition(), part })
    this.#parts.push(part)
    this.#open = undefined
    this.#text = ''
  }

  #partPosition(): object {
    return { ...this.position, content_index: this.#parts.length }
  }
}

/** A call that is being written. The input of a freeform tool is sent when it is whole: until then it is part of JSON. */
export class StreamedCall implements StreamedItem {
  readonly position: ItemPosition
  readonly #events: EventList
  readonly #id: string
  readonly #name: string
  readonly #tool: ClientTool | undefined
  #arguments = ''

  constructor(
    events: EventList,
    position: ItemPosition,
    { id, name, tool }: { id: string; name: string; tool: ClientTool | undefined },
  ) {
    this.#events = events
    this.position = position
    this.#id = id
    this.#name = name
    this.#tool = tool
    const item = this.#item('in_progress')
    events.add('response.output_item.added', {
      output_index: position.output_index,
      item: tool?.kind === 'custom' ? { ...item, input: '' } : item,
    })
  }

  add(delta: string): void {
    this.#arguments += delta
    if (this.#tool?.kind === 'custom') return
    this.#events.add('response.function_call_arguments.delta', { ...this.position, delta })
  }

  /** Whether the arguments are a whole object: no valid JSON can continue it. */
  get isComplete(): boolean {
    return this.#arguments.endsWith('}') && isJson(this.#arguments)
  }

  end(status: ItemStatus): OutputItem {
    const item = this.#item(status)
    if (this.#tool?.kind === 'custom') {
      const { input } = item
      this.#events.add('response.custom_tool_call_input.delta', { ...this.position, delta: input })
      this.#events.add('response.custom_tool_call_input.done', { ...this.position, input })
    } else {
      const done = { ...this.position, name: item['name'], arguments: this.#arguments }
      this.#events.add('response.function_call_arguments.done', done)
    }
    return ended(this.#events, this.position, item)
  }

  #item(status: ItemStatus): OutputItem {
    const called = { name: this.#name, arguments: this.#arguments }
    const call = { id: this.#id, type: 'function', function: called } as const
    return callItem(this.position.item_id, status, call, this.#tool)
  }
}

function partOf(kind: 'output_text' | 'refusal', text: string): object {
  return kind === 'output_text' ? textPart(text) : refusalPart(text)
}

function ended(events: EventList, { output_index }: ItemPosition, item: OutputItem): OutputItem {
  events.add('response.output_item.done', { output_index, item })
  return item
}

/** By type of call: the field with its input, and the name of the events that bring it. */
const written: ReadonlyMap<Json | undefined, { readonly field: string; readonly event: string }> = new Map([
  ['function_call', { field: 'arguments', event: 'function_call_arguments' }],
  ['custom_tool_call', { field: 'input', event: 'custom_tool_call_input' }],
  ['mcp_call', { field: 'arguments', event: 'mcp_call_arguments' }],
])

/** Adds the events of a whole item. An item of an unknown kind only begins and ends. */
export function repeatItem(events: EventList, item: JsonObject, output_index: number): void {
  const { id: item_id, type } = item
  const position = { item_id, output_index }
  const call = written.get(type)
  events.add('response.output_item.added', { output_index, item: begun(item, call?.field) })
  if (type === 'message') repeatParts(events, item['content'], position)
  if (type === 'reasoning') repeatReasoning(events, item, position)
  if (call) {
    const text = item[call.field]
    events.add(`response.${call.event}.delta`, { ...position, delta: text })
    events.add(`response.${call.event}.done`, { ...position, [call.field]: text })
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

function repeatParts(events: EventList, content: Json | undefined, position: object): void {
  for (const [content_index, part] of partsOf(content)) {
    const at = { ...position, content_index }
    const { type, text, refusal, annotations } = part
    const isRefusal = type === 'refusal'
    const empty = isRefusal ? { refusal: '' } : { text: '', ...(annotations !== undefined && { annotations: [] }) }
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

function repeatReasoning(events: EventList, { summary, content }: JsonObject, position: object): void {
  for (const [summary_index, part] of partsOf(summary)) {
    const at = { ...position, summary_index }
    events.add('response.reasoning_summary_part.added', { ...at, part: { ...part, text: '' } })
    events.add('response.reasoning_summary_text.delta', { ...at, delta: part['text'] })
    events.add('response.reasoning_summary_text.done', { ...at, text: part['text'] })
    events.add('response.reasoning_summary_part.done', { ...at, part })
  }
  for (const [content_index, part] of partsOf(content)) {
    const at = { ...position, content_index }
    events.add('response.reasoning_text.delta', { ...at, delta: part['text'] })
    events.add('response.reasoning_text.done', { ...at, text: part['text'] })
  }
}

function partsOf(value: Json | undefined): [number, JsonObject][] {
  return isJsonList(value) ? [...value.filter((part) => isJsonObject(part)).entries()] : []
}
