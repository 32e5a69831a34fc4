import { isJsonObject, type JsonObject, type Usage } from '../../schema/index.ts'
import type { BackendReply } from '../backend.ts'
import { malformedReply, truncatedReply } from './broken-reply.ts'
import type { AnswerContext } from './dialect.ts'
import { fitsMessage } from './_fits-message.ts'
import { ReplyDraft } from './_reply-draft.ts'
import { itemPlace } from './_responses-places.ts'
import { isObject, tokenCount } from './foreign-json.ts'
import { reportedError, readReportedError } from './reported-error.ts'
import type { Source } from './source.ts'

/** The separator between two parts of a reasoning, which are its paragraphs. */
export const betweenParts = '\n\n'

interface ResponseWire {
  status?: unknown
  output?: unknown
  usage?: unknown
  error?: unknown
  incomplete_details?: unknown
}

export interface OutputItemWire {
  type?: unknown
  content?: unknown
  summary?: unknown
  call_id?: unknown
  name?: unknown
  arguments?: unknown
}

interface UsageWire {
  input_tokens?: unknown
  output_tokens?: unknown
  input_tokens_details?: unknown
  output_tokens_details?: unknown
}

export function readResponse(body: unknown, source: Source, context: AnswerContext): BackendReply {
  if (!isObject(body)) throw malformedReply(source, 'it is no JSON object')
  const wire = body as ResponseWire
  if (wire.error !== undefined && wire.error !== null)
    throw reportedError(source, { reported: readReportedError(body) })
  if (!Array.isArray(wire.output)) throw malformedReply(source, 'it has no output')
  const draft = new ReplyDraft(source, context)
  const items: JsonObject[] = []
  for (const item of wire.output as readonly unknown[]) {
    if (!isJsonObject(item)) throw malformedReply(source, 'an output item is no object')
    readItem(draft, item)
    items.push(item)
  }
  if (!fitsMessage(items, itemPlace)) draft.original = { api: 'responses', output: items }
  if (isObject(wire.usage)) draft.usage = readUsage(wire.usage)
  draft.readVersion(body)
  draft.finish = finishOf(wire, source)
  return draft.reply()
}

/** The status as a finish reason, in the words of Chat. */
function finishOf({ status, incomplete_details: details }: ResponseWire, source: Source): string {
  if (status === 'completed') return 'stop'
  if (status === 'incomplete') {
    const { reason } = isObject(details) ? (details as { reason?: unknown }) : {}
    // Every other reason counts as `length`: the server does not call the response whole.
    return reason === 'content_filter' ? reason : 'length'
  }
  throw truncatedReply(source, `its status is "${String(status)}"`)
}

export function readItem(draft: ReplyDraft, item: OutputItemWire): void {
  switch (item.type) {
    case 'message':
      readMessage(draft, item)
      return
    case 'reasoning':
      // A server that shows the reasoning itself puts it into `content`; OpenAI shows only a summary of it.
      draft.reasoning += joinTexts(item.content) || joinTexts(item.summary)
      return
    case 'function_call': {
      const call = draft.toolCall(draft.toolCallCount)
      if (typeof item.call_id === 'string') call.id = item.call_id
      if (typeof item.name === 'string') call.name = item.name
      call.arguments = argumentsOf(item)
      return
    }
    default:
      // Calls of other tools than functions, which only this API knows.
      if (isJsonObject(item)) draft.addOther({ type: 'other', api: 'responses', value: item })
  }
}

/** The arguments as text. Some servers write them as an object, as another API does. */
export function argumentsOf({ arguments: written }: OutputItemWire): string {
  if (typeof written === 'string') return written
  return isObject(written) ? JSON.stringify(written) : ''
}

/** Reads the parts of a message. Some servers write its text as in Chat: as a plain string, or as a part of type `text`. */
function readMessage(draft: ReplyDraft, item: OutputItemWire): void {
  if (typeof item.content === 'string') draft.content = (draft.content ?? '') + item.content
  if (!Array.isArray(item.content)) return
  for (const part of item.content as readonly unknown[]) {
    if (!isObject(part)) continue
    const { type, text, refusal } = part as { type?: unknown; text?: unknown; refusal?: unknown }
    if ((type === 'output_text' || type === 'text') && typeof text === 'string')
      draft.content = (draft.content ?? '') + text
    else if (type === 'refusal' && typeof refusal === 'string') draft.refusal += refusal
  }
}

function joinTexts(parts: unknown): string {
  if (!Array.isArray(parts)) return ''
  const texts: string[] = []
  for (const part of parts as readonly unknown[]) {
    if (isObject(part) && 'text' in part && typeof part.text === 'string') texts.push(part.text)
  }
  return texts.join(betweenParts)
}

function readUsage(usage: UsageWire): Usage {
  const input = usage.input_tokens_details as { cached_tokens?: unknown } | null | undefined
  const output = usage.output_tokens_details as { reasoning_tokens?: unknown } | null | undefined
  return {
    calls: 1,
    input: tokenCount(usage.input_tokens),
    cachedInput: tokenCount(input?.cached_tokens),
    output: tokenCount(usage.output_tokens),
    reasoning: tokenCount(output?.reasoning_tokens),
  }
}
