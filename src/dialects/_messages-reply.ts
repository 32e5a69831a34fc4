import type { BackendReply } from '../inference/index.ts'
import { emptyUsage, type AssistantMessage, type JsonObject, type Usage } from '../schema/index.ts'
import type { ReplyHead } from './server-dialect.ts'
import { toolInput } from './tool-input.ts'

/**
 * Stands in for Anthropic's signature of its model's thinking. Nothing checks it here, but some clients send thinking back
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

/** The head of a streamed message. Its usage is zero: backends count at the end, so the numbers come with the stop reason. */
export function begunMessage(head: ReplyHead): Record<string, unknown> {
  const end = { stop_reason: null, stop_sequence: null, stop_details: null, container: null }
  return messageFields(head, { content: [], ...end, usage: wholeUsage(emptyUsage()) })
}

function messageFields({ id, model }: ReplyHead, rest: Record<string, unknown>): Record<string, unknown> {
  return { id, type: 'message', role: 'assistant', model, ...rest, diagnostics: null }
}

/**
 * The fields that say why a reply ended. This API writes a refusal as plain text; only the stop reason shows that it is one.
 */
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

/** The usage at the end of a stream. This API counts input from a cache separately. */
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

/**
 * The blocks that a server of this API wrote. The input of calls is from the message, which has numbers that no double can
 * hold.
 */
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
