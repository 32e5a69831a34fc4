import type { BackendReply } from '../backend.ts'
import {
  type FinishReason,
  isJsonObject,
  type ItemKind,
  type JsonObject,
  type ToolCall,
  type Usage,
} from '../../schema/index.ts'
import type { ItemOrigin, ReplyHead } from '../server-side.ts'
import { freeformInput } from '../tool-input.ts'
import type { ClientTool } from './tool-names.ts'

/** Why a reply is incomplete, by its finish reason; undefined if it is complete. */
const cutReasons: Readonly<Partial<Record<FinishReason, string>>> = {
  length: 'max_output_tokens',
  content_filter: 'content_filter',
}

export function isTruncated(finishReason: FinishReason): boolean {
  return cutReasons[finishReason] !== undefined
}

/** The response object, which repeats fields of the request. Without a reply, it is that of a response that has only begun. */
export function responseDocument(
  head: ReplyHead,
  output: readonly OutputItem[],
  reply?: BackendReply,
): Record<string, unknown> {
  return { ...responseFields(head, reply), output, ...repeatedFields(head.request.body) }
}

/** What a response says of itself, beside its output. */
export function responseFields(
  { id, model, createdAt }: Pick<ReplyHead, 'id' | 'model' | 'createdAt'>,
  reply?: Pick<BackendReply, 'finishReason' | 'usage'>,
): Record<string, unknown> {
  const cutReason = reply && cutReasons[reply.finishReason]
  return {
    id,
    object: 'response',
    created_at: createdAt,
    // The official types have this field, but only OpenAI has such programs.
    access_programs: null,
    status: reply ? (cutReason ? 'incomplete' : 'completed') : 'in_progress',
    background: false,
    error: null,
    incomplete_details: cutReason ? { reason: cutReason } : null,
    model,
    usage: reply ? responseUsage(reply.usage) : null,
  }
}

/** The fields of a request that its response repeats. */
export function repeatedFields(body: JsonObject): Record<string, unknown> {
  return {
    instructions: body['instructions'] ?? null,
    max_output_tokens: body['max_output_tokens'] ?? null,
    metadata: body['metadata'] ?? {},
    parallel_tool_calls: body['parallel_tool_calls'] ?? true,
    previous_response_id: body['previous_response_id'] ?? null,
    reasoning: { effort: null, summary: null, ...(isJsonObject(body['reasoning']) && body['reasoning']) },
    store: body['store'] ?? true,
    temperature: body['temperature'] ?? null,
    text: { format: { type: 'text' }, ...(isJsonObject(body['text']) && body['text']) },
    tool_choice: body['tool_choice'] ?? 'auto',
    tools: body['tools'] ?? [],
    top_p: body['top_p'] ?? null,
    truncation: body['truncation'] ?? 'disabled',
  }
}

function responseUsage({ input, cachedInput, output, reasoning }: Usage): Record<string, unknown> {
  return {
    input_tokens: input,
    input_tokens_details: { cached_tokens: cachedInput, cache_write_tokens: 0 },
    output_tokens: output,
    output_tokens_details: { reasoning_tokens: reasoning },
    total_tokens: input + output,
  }
}

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

export function callItem(id: string, status: ItemStatus, call: ToolCall, tool: ClientTool | undefined): OutputItem {
  const { name, arguments: written } = call.function
  const head = { id, status, call_id: call.id, name: tool?.name ?? name }
  const place = tool?.namespace === undefined ? head : { ...head, namespace: tool.namespace }
  return tool?.kind === 'custom'
    ? { ...place, type: 'custom_tool_call', input: freeformInput(written) }
    : { ...place, type: 'function_call', arguments: written }
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

/** What the items of a reply are named by. */
export type ItemsHead = Pick<ReplyHead, 'id' | 'itemIds'> & {
  readonly request?: Pick<ReplyHead['request'], 'toolNames'>
}

export function outputItems(
  head: ItemsHead,
  { message, finishReason }: Pick<BackendReply, 'message' | 'finishReason'>,
  isEncrypted: boolean,
): OutputItem[] {
  const { content, reasoning_content: reasoning, refusal, tool_calls: calls = [] } = message
  const lastStatus = isTruncated(finishReason) ? 'incomplete' : 'completed'
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
    const tool = head.request?.toolNames?.toolOf(call.function.name)
    items.push(callItem(itemName(head, 'fc', index), status, call, tool))
  }
  return items
}

const replyPrefix = 'resp_'

/** Ids of our own items. `newReplyId` writes 30 digits; OpenAI and vLLM write more, so their ids are not taken for ours. */
const ownItemId = /^(rs|msg|fc)_([0-9a-f]{30})(?:_(\d{1,4}))?$/

/**
 * The id of an item: the backend's own, else its reply's id with another prefix, and a number if there may be several items of its kind. A client
 * that sends items back, or only their ids, thereby says which reply they are from.
 */
export function itemName({ id, itemIds }: Pick<ReplyHead, 'id' | 'itemIds'>, kind: ItemKind, number?: number): string {
  const given = itemIds?.[kind]?.[number ?? 0]
  if (given) return given
  const own = id.startsWith(replyPrefix) ? id.slice(replyPrefix.length) : id
  return number === undefined ? `${kind}_${own}` : `${kind}_${own}_${number}`
}

/** The reply that an item of ours is from; undefined if its id is not ours. */
export function itemOrigin(id: unknown): ItemOrigin | undefined {
  const match = typeof id === 'string' ? ownItemId.exec(id) : null
  if (!match) return undefined
  const [, kind, own, number = '0'] = match
  if (kind !== 'rs' && kind !== 'msg' && kind !== 'fc') return undefined
  return { replyId: `${replyPrefix}${own}`, kind, number: Number(number) }
}

/** Version 1: the text as UTF-8 in base64url. A later encoding gets another number, and this one can still be read. */
const prefix = 'millrace-1.'

/** Hides nothing: it is for clients that send back only this field (`encrypted_content`) of a reasoning item. */
function encodeReasoning(text: string): string {
  return prefix + Buffer.from(text).toString('base64url')
}

export function decodeReasoning(encoded: string): string | undefined {
  if (!encoded.startsWith(prefix)) return undefined
  return Buffer.from(encoded.slice(prefix.length), 'base64url').toString()
}
