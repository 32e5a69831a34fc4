import { isJsonList, isJsonObject, type Json, type JsonObject, type Usage } from '../../schema/index.ts'
import type { BackendReply } from '../backend.ts'
import type { AnswerContext } from '../client-side.ts'
import { isLossless, type MessagePart, ReplyDraft, tokenCount } from '../reply-draft.ts'
import { malformedReply, type Source, truncatedReply } from '../errors/reply-errors.ts'
import { reportedIn } from '../errors/reported-error.ts'

/** The separator between two parts of a reasoning, which are its paragraphs. */
export const betweenParts = '\n\n'

export function readResponse(body: unknown, source: Source, context: AnswerContext): BackendReply {
  if (!isJsonObject(body)) throw malformedReply(source, 'it is not a JSON object')
  const { error, output, usage } = body
  if (error !== undefined && error !== null) throw reportedIn(source, body)
  if (!isJsonList(output)) throw malformedReply(source, 'it has no output')
  const draft = new ReplyDraft(source, context)
  const items: JsonObject[] = []
  for (const item of output) {
    if (!isJsonObject(item)) throw malformedReply(source, 'an output item is not an object')
    readItem(draft, item)
    items.push(item)
  }
  if (!isLossless(items, itemPart)) draft.original = { api: 'responses', output: items }
  if (isJsonObject(usage)) draft.usage = readUsage(usage)
  draft.readVersion(body)
  draft.finish = finishOf(body, source)
  return draft.reply()
}

function finishOf({ status, incomplete_details: details }: JsonObject, source: Source): string {
  if (status === 'completed') return 'stop'
  if (status === 'incomplete') {
    const { reason } = isJsonObject(details) ? details : {}
    // Every other reason counts as `length`: the server does not call the response whole.
    return reason === 'content_filter' ? reason : 'length'
  }
  throw truncatedReply(source, `its status is ${JSON.stringify(status)}`)
}

export function readItem(draft: ReplyDraft, item: JsonObject): void {
  const { type, call_id: id, name } = item
  if (type === 'message') readMessage(draft, item)
  // A server that shows the reasoning itself puts it into `content`; OpenAI shows only a summary of it.
  else if (type === 'reasoning') draft.reasoning += joinTexts(item['content']) || joinTexts(item['summary'])
  else if (type === 'function_call') {
    const call = draft.toolCall(draft.toolCallCount)
    if (typeof id === 'string') call.id = id
    if (typeof name === 'string') call.name = name
    call.arguments = argumentsOf(item)
  } else draft.addOther({ type: 'other', api: 'responses', value: item })
}

/** The arguments as text. Some servers write them as an object, as another API does. */
export function argumentsOf({ arguments: written }: JsonObject): string {
  if (typeof written === 'string') return written
  return isJsonObject(written) ? JSON.stringify(written) : ''
}

/** Reads the parts of a message. Some servers write its text as in Chat: as a plain string, or as a part of type `text`. */
function readMessage(draft: ReplyDraft, { content }: JsonObject): void {
  if (typeof content === 'string') draft.content = (draft.content ?? '') + content
  for (const part of partsOf(content)) {
    if (!isJsonObject(part)) continue
    const { type, text, refusal } = part
    const isText = type === 'output_text' || type === 'text'
    if (isText && typeof text === 'string') draft.content = (draft.content ?? '') + text
    else if (type === 'refusal' && typeof refusal === 'string') draft.refusal += refusal
  }
}

function joinTexts(parts: Json | undefined): string {
  const texts = partsOf(parts).map((part) => (isJsonObject(part) ? part['text'] : undefined))
  return texts.filter((text) => typeof text === 'string').join(betweenParts)
}

function readUsage(usage: JsonObject): Usage {
  const input = usage['input_tokens_details'] as { cached_tokens?: unknown } | null | undefined
  const output = usage['output_tokens_details'] as { reasoning_tokens?: unknown } | null | undefined
  return {
    calls: 1,
    input: tokenCount(usage['input_tokens']),
    cachedInput: tokenCount(input?.cached_tokens),
    output: tokenCount(usage['output_tokens']),
    reasoning: tokenCount(output?.reasoning_tokens),
  }
}

/** The place of our own message that holds all of an item; undefined if none does. */
function itemPart(item: JsonObject): MessagePart | undefined {
  const { type, content } = item
  if (type === 'reasoning') return isPlainReasoning(item) ? 'thought' : undefined
  if (type === 'message') return partsOf(content).every(isPlainPart) ? 'text' : undefined
  return type === 'function_call' ? 'call' : undefined
}

function isPlainReasoning({ content, summary, encrypted_content: encrypted }: JsonObject): boolean {
  return typeof encrypted !== 'string' && partsOf(content).length + partsOf(summary).length <= 1
}

function isPlainPart(part: Json): boolean {
  if (!isJsonObject(part)) return false
  return part['type'] === 'refusal' || (part['type'] === 'output_text' && partsOf(part['annotations']).length === 0)
}

function partsOf(value: Json | undefined): readonly Json[] {
  return isJsonList(value) ? value : []
}
