import type { BackendReply } from '../inference/index.ts'
import { emptyUsage, type AssistantMessage, type JsonObject, type Usage } from '../schema/index.ts'
import type { ReplyHead } from './server-dialect.ts'
import { toolInput } from './tool-input.ts'

/**
 * What stands where Anthropic signs its model's thinking. Nothing checks it here, but some clients send thinking back
 * only if it has one.
 */
export const signature = 'unsigned'

const stopReasons = {
  stop: 'end_turn',
  length: 'max_tokens',
  tool_calls: 'tool_use',
  content_filter: 'refusal',
} as const

/** A whole reply as a message of Anthropic's. */
export function wholeMessagesReply(head: ReplyHead, reply: BackendReply): Record<string, unknown> {
  return messageFields(head, { content: blocksOf(reply), ...endFields(reply), usage: wholeUsage(reply.usage) })
}

/** The head of a streamed one. Backends count at the end: the numbers come with the reason for it. */
export function begunMessage(head: ReplyHead): Record<string, unknown> {
  const end = { stop_reason: null, stop_sequence: null, stop_details: null, container: null }
  return messageFields(head, { content: [], ...end, usage: wholeUsage(emptyUsage()) })
}

function messageFields({ id, model }: ReplyHead, rest: Record<string, unknown>): Record<string, unknown> {
  return { id, type: 'message', role: 'assistant', model, ...rest, diagnostics: null }
}

/** Why a reply ended. A refusal is a text like any other in this API, told apart by the reason. */
export function endFields({ message, finishReason, stopSequence, stopReason }: BackendReply): Record<string, unknown> {
  const isSequence = stopSequence !== undefined && finishReason === 'stop'
  const reason = isSequence ? 'stop_sequence' : (stopReason ?? stopReasons[finishReason])
  return {
    stop_reason: message.refusal === undefined ? reason : 'refusal',
    stop_sequence: isSequence ? stopSequence : null,
    stop_details: null,
    container: null,
  }
}

/** What the end of a stream says of it. Input that came from a cache is counted apart in this API. */
export function messagesUsage({ input, cachedInput, output, reasoning }: Usage): Record<string, unknown> {
  return {
    input_tokens: Math.max(0, input - cachedInput),
    cache_creation_input_tokens: 0,
    cache_read_input_tokens: cachedInput,
    output_tokens: output,
    output_tokens_details: { thinking_tokens: reasoning },
    server_tool_use: null,
  }
}

function wholeUsage(usage: Usage): Record<string, unknown> {
  return { ...messagesUsage(usage), cache_creation: null, inference_geo: null, service_tier: null, speed: null }
}

function blocksOf({ message, original }: BackendReply): readonly Record<string, unknown>[] {
  if (original?.api === 'messages') return ownBlocks(original.output, message)
  const blocks: Record<string, unknown>[] = []
  if (message.reasoning_content) blocks.push({ type: 'thinking', thinking: message.reasoning_content, signature })
  for (const text of [message.content, message.refusal]) if (text) blocks.push({ type: 'text', text, citations: null })
  for (const { id, function: called } of message.tool_calls ?? []) {
    blocks.push(toolUse(id, called.name, toolInput(called.arguments)))
  }
  return blocks
}

/** What a server of this API wrote. The input of its calls is in the message, with numbers that no double can hold. */
export function ownBlocks(output: readonly JsonObject[], message: AssistantMessage): readonly JsonObject[] {
  const calls = message.tool_calls?.values()
  return output.map((block) => {
    const call = block['type'] === 'tool_use' ? calls?.next().value : undefined
    return call ? { ...block, input: toolInput(call.function.arguments) } : block
  })
}

export function toolUse(id: string, name: string, input: JsonObject): Record<string, unknown> {
  return { type: 'tool_use', id, name, input, caller: { type: 'direct' } }
}
