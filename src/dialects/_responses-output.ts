import type { AssistantMessage, ToolCall } from '../schema/index.ts'
import { itemName } from './_responses-ids.ts'
import { encodeReasoning } from './_responses-reasoning.ts'
import type { ReplyHead } from './server-dialect.ts'

export type OutputItem = Readonly<Record<string, unknown>>

/** The status of an item. Reasoning has none: a server that gets it sent back with a status need not accept it. */
export type ItemStatus = 'in_progress' | 'completed' | 'incomplete'

export function reasoningItem(id: string, text: string, isEncrypted: boolean): OutputItem {
  const summary = [summaryPart(text)]
  return isEncrypted
    ? { id, type: 'reasoning', summary, encrypted_content: encodeReasoning(text) }
    : { id, type: 'reasoning', summary }
}

export function messageItem(id: string, status: ItemStatus, content: readonly object[]): OutputItem {
  return { id, type: 'message', status, role: 'assistant', content }
}

export function callItem(id: string, status: ItemStatus, call: ToolCall): OutputItem {
  const { name, arguments: written } = call.function
  return { id, type: 'function_call', status, call_id: call.id, name, arguments: written }
}

export function summaryPart(text: string): object {
  return { type: 'summary_text', text }
}

export function textPart(text: string): object {
  return { type: 'output_text', text, annotations: [], logprobs: [] }
}

export function refusalPart(refusal: string): object {
  return { type: 'refusal', refusal }
}

export interface OutputOptions {
  readonly head: ReplyHead
  readonly isEncrypted: boolean
  /** Whether the reply was cut, and so its last item. */
  readonly isCut: boolean
}

/** The items of a whole message. */
export function outputItems(message: AssistantMessage, { head, isEncrypted, isCut }: OutputOptions): OutputItem[] {
  const { content, reasoning_content: reasoning, refusal, tool_calls: calls = [] } = message
  const lastStatus = isCut ? 'incomplete' : 'completed'
  const items: OutputItem[] = []
  if (reasoning) items.push(reasoningItem(itemName(head, 'rs'), reasoning, isEncrypted))
  const parts: object[] = []
  if (content) parts.push(textPart(content))
  if (refusal) parts.push(refusalPart(refusal))
  // An empty reply is still a reply, and must come back as one.
  if (parts.length === 0 && calls.length === 0 && !reasoning) parts.push(textPart(''))
  if (parts.length > 0) {
    items.push(messageItem(itemName(head, 'msg'), calls.length === 0 ? lastStatus : 'completed', parts))
  }
  for (const [index, call] of calls.entries()) {
    items.push(callItem(itemName(head, 'fc', index), index === calls.length - 1 ? lastStatus : 'completed', call))
  }
  return items
}
