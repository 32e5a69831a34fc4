import type { AssistantMessage, ToolCall } from '../schema/index.ts'
import { itemName } from './_responses-ids.ts'
import { encodeReasoning } from './_responses-reasoning.ts'
import type { ReplyHead } from './server-dialect.ts'
import type { ClientTool } from './_tool-names.ts'
import { freeformInput } from './tool-input.ts'

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

/** A call, of the tool that its function stands for. */
export function callItem(id: string, status: ItemStatus, { call, tool }: CalledTool): OutputItem {
  const { name, arguments: written } = call.function
  const head = { id, status, call_id: call.id, name: tool?.name ?? name }
  const place = tool?.namespace === undefined ? head : { ...head, namespace: tool.namespace }
  return tool?.kind === 'custom'
    ? { ...place, type: 'custom_tool_call', input: freeformInput(written) }
    : { ...place, type: 'function_call', arguments: written }
}

export interface CalledTool {
  readonly call: ToolCall
  readonly tool: ClientTool | undefined
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
    const status = index === calls.length - 1 ? lastStatus : 'completed'
    const tool = head.request.toolNames?.toolOf(call.function.name)
    items.push(callItem(itemName(head, 'fc', index), status, { call, tool }))
  }
  return items
}
