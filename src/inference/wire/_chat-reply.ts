import { isJsonObject, type Usage } from '../../schema/index.ts'
import type { BackendReply } from '../backend.ts'
import { malformedReply } from './broken-reply.ts'
import { ChatExtras } from './_chat-extras.ts'
import type { DraftCall, ReplyDraft } from './_reply-draft.ts'
import type { TokenArrays } from '../tokens/token-scanner.ts'
import { isObject, textOrNothing, tokenCount } from './foreign-json.ts'
import { reportedError, readReportedError } from './reported-error.ts'
import { textIn, thoughtIn } from './thinking-part.ts'

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
  /** OpenRouter's place for an error of the server behind it. */
  error?: unknown
  /** The stop sequence that ended the reply (vLLM's name, then SGLang's), or the id of the token that did. */
  stop_reason?: unknown
  matched_stop?: unknown
  token_ids?: unknown
  /** The name of `token_ids` in newer versions of SGLang. */
  response_token_ids?: unknown
  logprobs?: unknown
  routed_experts?: unknown
  /** SGLang puts the ids of the prompt into the choice instead of the top level. */
  prompt_token_ids?: unknown
  /** SGLang's own fields, under their newer and their older name. */
  sgl_ext?: unknown
  meta_info?: unknown
}

interface SglangWire {
  routed_experts?: unknown
  output_token_logprobs?: unknown
  input_token_ids?: unknown
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
  custom?: unknown
  extra_content?: unknown
}

interface UsageWire {
  prompt_tokens?: unknown
  completion_tokens?: unknown
  total_tokens?: unknown
  prompt_tokens_details?: unknown
  completion_tokens_details?: unknown
  prompt_cache_hit_tokens?: unknown
}

/** Reads a whole reply. Long lists may have been taken out of its body into `tokens`; the others are read from the body. */
export function readChatReply(body: unknown, draft: ReplyDraft, tokens?: TokenArrays): BackendReply {
  const { source } = draft
  if (!isObject(body)) throw malformedReply(source, 'it is no JSON object')
  const wire = body as ChatReplyWire
  if (wire.error !== undefined && wire.error !== null)
    throw reportedError(source, { reported: readReportedError(body) })
  const choice: unknown = Array.isArray(wire.choices) ? wire.choices[0] : undefined
  if (!isObject(choice)) throw malformedReply(source, 'it has no choices')
  const { message } = choice as ChatChoiceWire
  if (!isObject(message)) throw malformedReply(source, 'its choice has no message')
  readMessage(draft, message)
  if (Array.isArray(wire.prompt_token_ids)) draft.tokens.setPromptIds(wire.prompt_token_ids)
  readTokens(draft, choice, tokens)
  if (isObject(wire.usage)) draft.usage = readUsage(wire.usage)
  draft.readVersion(body)
  draft.endTokens(0)
  readEnd(draft, choice)
  return draft.reply()
}

/**
 * Reads why the reply ended. Events of a stream before the last one have no reason, or an empty one. Throws if the choice reports
 * an error.
 */
export function readEnd(draft: ReplyDraft, choice: ChatChoiceWire): void {
  if (isObject(choice.error)) throw reportedError(draft.source, { reported: readReportedError(choice) })
  const finish = textOrNothing(choice.finish_reason)
  if (finish === undefined) return
  draft.finish = finish
  const stopped = choice.stop_reason ?? choice.matched_stop
  if (typeof stopped === 'string') draft.stopSequence = stopped
}

function readMessage(draft: ReplyDraft, message: ChatMessageWire): void {
  draft.content = readContent(message.content)
  draft.reasoning = readReasoning(draft, message) ?? ''
  draft.refusal = textOrNothing(message.refusal) ?? ''
  if (Array.isArray(message.tool_calls)) readToolCalls(draft, message.tool_calls)
  const extras = new ChatExtras()
  extras.add(message)
  extras.keepIn(draft, message)
}

function readToolCalls(draft: ReplyDraft, calls: readonly unknown[]): void {
  for (const [index, call] of calls.entries()) {
    if (!isObject(call)) throw malformedReply(draft.source, `tool call ${index} is no object`)
    readToolCall(draft.toolCall(index), call)
  }
}

/** Reads the content: a string, nothing, or (from a few servers) a list of parts, whose texts are the content. */
export function readContent(content: unknown): string | null {
  if (typeof content === 'string') return content
  if (!Array.isArray(content)) return null
  const texts = content.map(textIn).filter((text) => text !== undefined)
  return texts.length === 0 ? null : texts.join('')
}

/** Reads the reasoning. Its field is named `reasoning_content` or `reasoning`; some servers put it into the content instead. */
export function readReasoning(draft: ReplyDraft, message: ChatMessageWire): string | undefined {
  const { content } = message
  const thoughts = Array.isArray(content) ? content.map(thoughtIn).filter((thought) => thought !== undefined) : none
  if (thoughts.length > 0) draft.thinksInContent = true
  const named = textOrNothing(message.reasoning_content) ?? textOrNothing(message.reasoning)
  return named ?? (thoughts.length > 0 ? thoughts.join('') : undefined)
}

const none: readonly string[] = []

/** Adds a whole call or the next piece of one to the draft, and returns the text that its arguments grew by. */
export function readToolCall(call: DraftCall, wire: ChatToolCallWire): string {
  if (call.id === '' && typeof wire.id === 'string') call.id = wire.id
  if (isObject(wire.custom)) {
    readCustom(call, wire.custom)
    return ''
  }
  if (isJsonObject(wire.extra_content)) call.seal = wire.extra_content
  if (!isObject(wire.function)) return ''
  const { name, arguments: given } = wire.function as { name?: unknown; arguments?: unknown }
  // The name comes once, with the first piece. A server that repeats it does not mean to append.
  if (call.name === '' && typeof name === 'string') call.name = name
  const piece = typeof given === 'string' ? given : isObject(given) ? JSON.stringify(given) : ''
  call.arguments += piece
  return piece
}

function readCustom(call: DraftCall, { name, input }: { name?: unknown; input?: unknown }): void {
  if (call.name === '' && typeof name === 'string') call.name = name
  call.input = (call.input ?? '') + (typeof input === 'string' ? input : '')
}

/**
 * Reads the token ids (vLLM's `return_token_ids`), log-probabilities and routed experts that are in the document itself. A
 * short document has all of them; a long one only the lists that are written in an unusual way.
 */
function readPlainTokens(draft: ReplyDraft, choice: ChatChoiceWire): void {
  if (isObject(choice.meta_info)) draft.readVersion(choice.meta_info)
  const ids = choice.token_ids ?? choice.response_token_ids
  if (Array.isArray(ids)) draft.tokens.addIds(ids)
  const { content } = isObject(choice.logprobs) ? (choice.logprobs as { content?: unknown }) : {}
  if (Array.isArray(content)) draft.tokens.addLogprobs(content)
  for (const holder of [choice, choice.sgl_ext, choice.meta_info]) {
    const experts = isObject(holder) ? (holder as SglangWire).routed_experts : undefined
    if (experts !== undefined && experts !== null) draft.tokens.setExperts(experts)
  }
}

/**
 * Reads the tokens of a choice, whole or a piece, also from SGLang's own fields. `scanned` are the lists taken out of the
 * JSON before.
 */
export function readTokens(draft: ReplyDraft, choice: ChatChoiceWire, scanned: TokenArrays | undefined): void {
  readPromptIds(draft, choice)
  const hasIds = scanned?.ids !== undefined || Array.isArray(choice.token_ids)
  const pairs = hasIds ? undefined : tokenPairs(choice)
  if (!pairs) {
    readPlainTokens(draft, choice)
    if (scanned) draft.tokens.add(scanned)
    return
  }
  draft.tokens.addPairs(pairs)
  // The tokens may be there twice: their ids in a list of their own, and their log-probabilities in OpenAI's form, without
  // ids.
  const { logprobs: _again, ...others } = scanned ?? {}
  readPlainTokens(draft, { ...choice, logprobs: undefined, response_token_ids: undefined })
  draft.tokens.add(others)
}

function tokenPairs(choice: ChatChoiceWire): readonly unknown[] | undefined {
  for (const holder of [choice.meta_info, choice.sgl_ext]) {
    const pairs = isObject(holder) ? (holder as SglangWire).output_token_logprobs : undefined
    if (Array.isArray(pairs)) return pairs
  }
  return undefined
}

function readPromptIds(draft: ReplyDraft, choice: ChatChoiceWire): void {
  if (Array.isArray(choice.prompt_token_ids)) draft.tokens.setPromptIds(choice.prompt_token_ids)
  for (const holder of [choice.meta_info, choice.sgl_ext]) {
    const ids = isObject(holder) ? (holder as SglangWire).input_token_ids : undefined
    if (Array.isArray(ids)) draft.tokens.setPromptIds(ids)
  }
}

export function readUsage(usage: UsageWire): Usage {
  const prompt = usage.prompt_tokens_details as { cached_tokens?: unknown } | null | undefined
  const completion = usage.completion_tokens_details as { reasoning_tokens?: unknown } | null | undefined
  const input = tokenCount(usage.prompt_tokens)
  const output = tokenCount(usage.completion_tokens)
  const reasoning = tokenCount(completion?.reasoning_tokens)
  // xAI does not count reasoning within the output, though it charges it as output: its total then includes both.
  const isApart = reasoning > 0 && tokenCount(usage.total_tokens) === input + output + reasoning
  return {
    calls: 1,
    input,
    // DeepSeek reports its cache beside the details instead of in them.
    cachedInput: tokenCount(prompt?.cached_tokens ?? usage.prompt_cache_hit_tokens),
    output: isApart ? output + reasoning : output,
    reasoning,
  }
}
