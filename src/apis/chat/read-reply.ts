import {
  type AssistantMessage,
  isJsonList,
  isJsonObject,
  type Json,
  type JsonObject,
  type Usage,
} from '../../schema/index.ts'
import type { BackendReply } from '../backend.ts'
import { malformedReply } from '../errors/reply-errors.ts'
import { reportedIn } from '../errors/reported-error.ts'
import { type DraftCall, type ReplyDraft, textOrUndefined, tokenCount } from '../reply-draft.ts'
import type { TokenArrays } from '../tokens/token-scanner.ts'

/** Reads a whole reply. Long lists may have been taken out of its body into `tokens`; the others are read from the body. */
export function readChatReply(body: unknown, draft: ReplyDraft, tokens?: TokenArrays): BackendReply {
  const { source } = draft
  if (!isJsonObject(body)) throw malformedReply(source, 'it is not a JSON object')
  const { error, choices, prompt_token_ids: promptIds, usage } = body
  if (error !== undefined && error !== null) throw reportedIn(source, body)
  const choice: unknown = Array.isArray(choices) ? choices[0] : undefined
  if (!isJsonObject(choice)) throw malformedReply(source, 'it has no choices')
  const { message } = choice
  if (!isJsonObject(message)) throw malformedReply(source, 'its choice has no message')
  readMessage(draft, message)
  if (Array.isArray(promptIds)) draft.tokens.setPromptIds(promptIds)
  readTokens(draft, choice, tokens)
  if (isJsonObject(usage)) draft.usage = readUsage(usage)
  draft.readVersion(body)
  draft.endTokens(0)
  readEnd(draft, choice)
  return draft.reply()
}

/** Reads why the reply ended: events of a stream before the last one do not say. Throws an error that the choice reports. */
export function readEnd(draft: ReplyDraft, choice: JsonObject): void {
  const { error, finish_reason: reason, stop_reason: vllmStop, matched_stop: sglangStop } = choice
  // OpenRouter's place for an error of the server behind it.
  if (isJsonObject(error)) throw reportedIn(draft.source, choice)
  const finish = textOrUndefined(reason)
  if (finish === undefined) return
  draft.finish = finish
  const stopped = vllmStop ?? sglangStop
  if (typeof stopped === 'string') draft.stopSequence = stopped
}

function readMessage(draft: ReplyDraft, message: JsonObject): void {
  draft.content = readContent(message['content'])
  draft.reasoning = readReasoning(draft, message) ?? ''
  draft.refusal = textOrUndefined(message['refusal']) ?? ''
  for (const [index, call] of (isJsonList(message['tool_calls']) ? message['tool_calls'] : []).entries()) {
    if (!isJsonObject(call)) throw malformedReply(draft.source, `tool call ${index} is not an object`)
    readToolCall(draft.toolCall(index), call)
  }
  const extras = new ChatExtras()
  extras.add(message)
  extras.keepIn(draft, message)
}

export function readContent(content: unknown): string | null {
  if (typeof content === 'string') return content
  if (!Array.isArray(content)) return null
  const texts = content.map(textIn).filter((text) => text !== undefined)
  return texts.length === 0 ? null : texts.join('')
}

/** Reads the reasoning. Its field is named `reasoning_content` or `reasoning`; some servers put it into the content instead. */
export function readReasoning(draft: ReplyDraft, message: JsonObject): string | undefined {
  const { content } = message
  const thoughts = isJsonList(content) ? content.map(reasoningIn).filter((thought) => thought !== undefined) : []
  if (thoughts.length > 0) draft.thinksInContent = true
  const named = textOrUndefined(message['reasoning_content']) ?? textOrUndefined(message['reasoning'])
  return named ?? (thoughts.length > 0 ? thoughts.join('') : undefined)
}

/** Adds a whole call or the next piece of one to the draft, and returns the text that its arguments grew by. */
export function readToolCall(
  call: DraftCall,
  { id, custom, extra_content: signature, function: called }: JsonObject,
): string {
  if (call.id === '' && typeof id === 'string') call.id = id
  if (isJsonObject(custom)) {
    const { name, input } = custom
    if (call.name === '' && typeof name === 'string') call.name = name
    call.input = (call.input ?? '') + (typeof input === 'string' ? input : '')
    return ''
  }
  if (isJsonObject(signature)) call.signature = signature
  if (!isJsonObject(called)) return ''
  const { name, arguments: given } = called
  // The name comes once, with the first piece. A server that repeats it does not mean to append.
  if (call.name === '' && typeof name === 'string') call.name = name
  const piece = typeof given === 'string' ? given : isJsonObject(given) ? JSON.stringify(given) : ''
  call.arguments += piece
  return piece
}

/** Reads what is in the document itself: all of a short one, of a long one only lists in an unusual form. */
function readPlainTokens(draft: ReplyDraft, choice: JsonObject): void {
  const { token_ids: ids, response_token_ids: sglangIds, logprobs, sgl_ext: extension, meta_info: meta } = choice
  if (isJsonObject(meta)) draft.readVersion(meta)
  const listed = ids ?? sglangIds
  if (isJsonList(listed)) draft.tokens.addIds(listed)
  const entries = isJsonObject(logprobs) ? logprobs['content'] : undefined
  if (isJsonList(entries)) draft.tokens.addLogprobs(entries)
  for (const holder of [choice, extension, meta]) {
    const experts = isJsonObject(holder) ? holder['routed_experts'] : undefined
    if (experts !== undefined && experts !== null) draft.tokens.setExperts(experts)
  }
}

/** Reads the tokens of a choice, also from SGLang's own fields. `scanned` are the lists taken out of the JSON before. */
export function readTokens(draft: ReplyDraft, choice: JsonObject, scanned: TokenArrays | undefined): void {
  const { prompt_token_ids: promptIds, token_ids: ids, meta_info: meta, sgl_ext: extension } = choice
  const own = [meta, extension].filter((holder) => isJsonObject(holder))
  for (const list of [promptIds, ...own.map((holder) => holder['input_token_ids'])]) {
    if (isJsonList(list)) draft.tokens.setPromptIds(list)
  }
  const hasIds = scanned?.ids !== undefined || isJsonList(ids)
  const pairs = hasIds ? undefined : own.map((holder) => holder['output_token_logprobs']).find(isJsonList)
  if (!pairs) {
    readPlainTokens(draft, choice)
    if (scanned) draft.tokens.add(scanned)
    return
  }
  draft.tokens.addPairs(pairs)
  // The same tokens may also have a list of ids, and log-probabilities in OpenAI's form.
  const { logprobs: _again, ...others } = scanned ?? {}
  readPlainTokens(draft, { ...choice, logprobs: undefined, response_token_ids: undefined })
  draft.tokens.add(others)
}

export function readUsage(usage: JsonObject): Usage {
  const prompt = usage['prompt_tokens_details'] as { cached_tokens?: unknown } | null | undefined
  const completion = usage['completion_tokens_details'] as { reasoning_tokens?: unknown } | null | undefined
  const input = tokenCount(usage['prompt_tokens'])
  const output = tokenCount(usage['completion_tokens'])
  const reasoning = tokenCount(completion?.reasoning_tokens)
  // xAI does not count reasoning within the output, though it charges it as output: its total then includes both.
  const isApart = reasoning > 0 && tokenCount(usage['total_tokens']) === input + output + reasoning
  return {
    calls: 1,
    input,
    // DeepSeek reports its cache beside the details instead of in them.
    cachedInput: tokenCount(prompt?.cached_tokens ?? usage['prompt_cache_hit_tokens']),
    output: isApart ? output + reasoning : output,
    reasoning,
  }
}

/** Fields that are not extras: our own message has a place for them, or nobody needs them. */
const known = new Set(['role', 'content', 'reasoning_content', 'reasoning', 'refusal', 'tool_calls'])

/** Fields that pieces of a stream repeat; the texts of all other fields are continued by the next piece. */
const repeated = new Set(['id', 'type', 'format', 'index'])

type Growing = Json | Growing[] | Fields
type Fields = { [name: string]: Growing | undefined }

/** The fields of a chat message that ours has no place for: audio, annotations, signed reasoning. Most have none. */
export class ChatExtras {
  #fields: Fields | undefined

  add(message: object): void {
    for (const name in message) {
      // Nearly all pieces of a stream have only `content`.
      if (name === 'content' || known.has(name)) continue
      const value = (message as JsonObject)[name]
      if (value === undefined || value === null || (isJsonList(value) && value.length === 0)) continue
      this.#fields ??= noFields()
      this.#fields[name] = grown(this.#fields[name], value)
    }
  }

  /** Keeps the reply as its server wrote it (`whole`, or from the pieces) if the message cannot hold all of it. */
  keepIn(draft: ReplyDraft, whole?: object): void {
    const extras: JsonObject | undefined = this.#fields
    const { signatures, thinksInContent } = draft
    if (!extras && !draft.hasCustomCalls && !signatures && !thinksInContent && !hasOtherParts(whole)) return
    const audio = extras?.['audio']
    if (audio !== undefined) draft.addOther({ type: 'other', api: 'chat', value: { audio } })
    draft.original = { api: 'chat', output: [whole ? { ...whole } : { ...wholeMessage(draft), ...extras }] }
  }
}

/** Whether the content has parts that are no text, such as generated images or references. */
function hasOtherParts(whole: { readonly content?: unknown } | undefined): boolean {
  const content = whole?.content
  return Array.isArray(content) && content.some((part: unknown) => textIn(part) === undefined)
}

/** A message that came in pieces, written as its server would have written it whole. */
function wholeMessage(draft: ReplyDraft): JsonObject {
  const message = withSignatures(chatMessage(draft.message()), draft.signatures)
  if (!draft.thinksInContent) return message
  const { reasoning_content: _thought, ...rest } = message
  return { ...rest, content: thoughtfulContent(draft.reasoning, draft.content) }
}

/** A message in the words of Chat, including the parts that only Chat knows. Audio is repeated by its id alone. */
export function chatMessage({ others = [], tool_calls: functions = [], ...message }: AssistantMessage): JsonObject {
  const sent: Record<string, Json | undefined> = { ...message }
  const calls: Json[] = functions.map((call) => ({ ...call }))
  for (const { api, value } of others) {
    if (api !== 'chat' || !isJsonObject(value)) continue
    const { audio } = value
    if (isJsonObject(audio)) sent['audio'] = { id: audio['id'] }
    else if (value['id'] !== undefined) calls.push(value)
  }
  if (calls.length > 0) sent['tool_calls'] = calls
  return sent
}

/** Adds a piece. The lists and objects of the sum are our own, so a piece costs only its own length. */
function grown(sum: Growing | undefined, piece: Json): Growing {
  if (typeof sum === 'string' && typeof piece === 'string') return sum + piece
  if (isJsonList(piece)) {
    const list: Growing[] = Array.isArray(sum) ? sum : []
    for (const value of piece) list.push(value)
    return list
  }
  if (!isJsonObject(piece)) return piece
  const fields: Fields = isJsonObject(sum) ? sum : noFields()
  for (const [name, value] of Object.entries(piece)) {
    if (value !== undefined) fields[name] = repeated.has(name) ? value : grown(fields[name], value)
  }
  return fields
}

/** An object without a prototype: a server may name a field `__proto__`, and values put into that would be in every object. */
function noFields(): Fields {
  return { __proto__: null }
}

/** The reasoning in a part of Mistral's content, where it comes before the text. Undefined for other parts. */
export function reasoningIn(part: unknown): string | undefined {
  if (!isJsonObject(part) || part['type'] !== 'thinking') return undefined
  const { thinking } = part
  if (typeof thinking === 'string') return thinking
  return Array.isArray(thinking) ? thinking.map((each) => textIn(each) ?? '').join('') : ''
}

function textIn(part: unknown): string | undefined {
  return isJsonObject(part) && typeof part['text'] === 'string' ? part['text'] : undefined
}

/** A content with the reasoning as its first part, as Mistral has it. */
export function thoughtfulContent(thought: string, text: string | null): JsonObject[] {
  const thinking = { type: 'thinking', thinking: [{ type: 'text', text: thought }] }
  return text === null ? [thinking] : [thinking, { type: 'text', text }]
}

/** The message with each function call's `extra_content`, which its server wants to see again. */
export function withSignatures(message: JsonObject, signatures: readonly (Json | undefined)[] = []): JsonObject {
  const { tool_calls: calls } = message
  if (signatures.length === 0 || !isJsonList(calls)) return message
  const signed: Json[] = []
  for (const [index, call] of calls.entries()) {
    const signature = signatures[index]
    signed.push(signature === undefined || !isJsonObject(call) ? call : { ...call, extra_content: signature })
  }
  return { ...message, tool_calls: signed }
}
