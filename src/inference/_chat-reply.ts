import type { Usage } from '../schema/index.ts'
import type { BackendReply } from './backend.ts'
import { malformedReply } from './broken-reply.ts'
import type { ReplyDraft } from './_reply-draft.ts'
import type { TokenArrays } from './_token-scanner.ts'
import { isObject, textOrNothing, tokenCount } from './_wire.ts'
import { reportedError, readReportedError } from './reported-error.ts'

export interface ChatReplyWire {
  choices?: unknown
  usage?: unknown
  error?: unknown
  prompt_token_ids?: unknown
}

/** One choice; `message` in a whole reply, `delta` in a stream. */
export interface ChatChoiceWire {
  index?: unknown
  message?: unknown
  delta?: unknown
  finish_reason?: unknown
  token_ids?: unknown
  logprobs?: unknown
  routed_experts?: unknown
  /** SGLang's own, under its newer and its older name. */
  sgl_ext?: unknown
  meta_info?: unknown
}

export interface ChatMessageWire {
  content?: unknown
  reasoning_content?: unknown
  reasoning?: unknown
  refusal?: unknown
  tool_calls?: unknown
}

export interface ChatToolCallWire {
  index?: unknown
  id?: unknown
  function?: unknown
}

interface UsageWire {
  prompt_tokens?: unknown
  completion_tokens?: unknown
  prompt_tokens_details?: unknown
  completion_tokens_details?: unknown
  prompt_cache_hit_tokens?: unknown
}

/** Of a body whose long lists may be in `tokens` instead: what is not there is read from it. */
export function readChatReply(body: unknown, draft: ReplyDraft, tokens?: TokenArrays): BackendReply {
  const { source } = draft
  if (!isObject(body)) throw malformedReply(source, 'it is no JSON object')
  const wire = body as ChatReplyWire
  if (wire.error !== undefined && wire.error !== null)
    throw reportedError(source, { reported: readReportedError(body) })
  const choice: unknown = Array.isArray(wire.choices) ? wire.choices[0] : undefined
  if (!isObject(choice)) throw malformedReply(source, 'it has no choices')
  const { message, finish_reason: finish } = choice as ChatChoiceWire
  if (!isObject(message)) throw malformedReply(source, 'its choice has no message')
  readMessage(draft, message)
  if (Array.isArray(wire.prompt_token_ids)) draft.tokens.setPromptIds(wire.prompt_token_ids)
  readTokens(draft, choice)
  if (tokens) draft.tokens.add(tokens)
  if (isObject(wire.usage)) draft.usage = readUsage(wire.usage)
  draft.readVersion(body)
  if (typeof finish === 'string') draft.finish = finish
  return draft.reply()
}

function readMessage(draft: ReplyDraft, message: ChatMessageWire): void {
  draft.content = readContent(message.content)
  draft.reasoning = readReasoning(message) ?? ''
  draft.refusal = textOrNothing(message.refusal) ?? ''
  if (!Array.isArray(message.tool_calls)) return
  for (let index = 0; index < message.tool_calls.length; index += 1) {
    const call: unknown = message.tool_calls[index]
    if (!isObject(call)) throw malformedReply(draft.source, `tool call ${index} is no object`)
    readToolCall(draft, index, call)
  }
}

/** A string, or nothing, or (from a few servers) a list of text parts. */
export function readContent(content: unknown): string | null {
  if (typeof content === 'string') return content
  if (!Array.isArray(content)) return null
  let text = ''
  for (const part of content as readonly unknown[]) {
    if (isObject(part) && 'text' in part && typeof part.text === 'string') text += part.text
  }
  return text
}

/** The field had another name first, and has again at some servers. */
export function readReasoning(message: ChatMessageWire): string | undefined {
  return textOrNothing(message.reasoning_content) ?? textOrNothing(message.reasoning)
}

/** Adds what is there: a whole call, or the next piece of one. */
export function readToolCall(draft: ReplyDraft, index: number, wire: ChatToolCallWire): void {
  const call = draft.toolCall(index)
  if (call.id === '' && typeof wire.id === 'string') call.id = wire.id
  if (!isObject(wire.function)) return
  const { name, arguments: given } = wire.function as { name?: unknown; arguments?: unknown }
  // The name comes once, with the first piece; servers that repeat it mean the same one.
  if (call.name === '' && typeof name === 'string') call.name = name
  if (typeof given === 'string') call.arguments += given
  else if (isObject(given)) call.arguments += JSON.stringify(given)
}

/**
 * Token ids (vLLM's `return_token_ids`), log-probabilities and routed experts that are in the document itself: in a short
 * one all of them, in a long one what is written in an unusual way.
 */
export function readTokens(draft: ReplyDraft, choice: ChatChoiceWire): void {
  if (Array.isArray(choice.token_ids)) draft.tokens.addIds(choice.token_ids)
  const { content } = isObject(choice.logprobs) ? (choice.logprobs as { content?: unknown }) : {}
  if (Array.isArray(content)) draft.tokens.addLogprobs(content)
  for (const holder of [choice, choice.sgl_ext, choice.meta_info]) {
    const experts = isObject(holder) ? (holder as { routed_experts?: unknown }).routed_experts : undefined
    if (experts !== undefined && experts !== null) draft.tokens.setExperts(experts)
  }
}

export function readUsage(usage: UsageWire): Usage {
  const prompt = usage.prompt_tokens_details as { cached_tokens?: unknown } | null | undefined
  const completion = usage.completion_tokens_details as { reasoning_tokens?: unknown } | null | undefined
  return {
    calls: 1,
    input: tokenCount(usage.prompt_tokens),
    // DeepSeek reports its cache beside the details instead of in them.
    cachedInput: tokenCount(prompt?.cached_tokens ?? usage.prompt_cache_hit_tokens),
    output: tokenCount(usage.completion_tokens),
    reasoning: tokenCount(completion?.reasoning_tokens),
  }
}
