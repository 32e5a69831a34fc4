import { hasInexactNumber, parseExactly } from '../../kit/index.ts'
import type { JsonObject, Usage } from '../../schema/index.ts'
import type { BackendReply } from '../backend.ts'
import { malformedReply } from './broken-reply.ts'
import { betweenThoughts, keepBlocks } from './_messages-blocks.ts'
import type { ReplyDraft } from './_reply-draft.ts'
import { readReportedError, reportedError } from './reported-error.ts'
import { isObject, textOrNothing, tokenCount } from './foreign-json.ts'

export interface MessageWire {
  type?: unknown
  content?: unknown
  stop_reason?: unknown
  stop_sequence?: unknown
  usage?: unknown
  error?: unknown
}

/** A whole block, or in a stream the beginning of one. */
export interface BlockWire {
  type?: unknown
  text?: unknown
  thinking?: unknown
  id?: unknown
  name?: unknown
  input?: unknown
}

interface UsageWire {
  input_tokens?: unknown
  cache_read_input_tokens?: unknown
  cache_creation_input_tokens?: unknown
  output_tokens?: unknown
  output_tokens_details?: unknown
}

/** Reads a whole reply. `text` is the JSON of the body, for numbers that no double can hold. */
export function readMessagesReply(body: unknown, draft: ReplyDraft, text?: string): BackendReply {
  const { source } = draft
  if (!isObject(body)) throw malformedReply(source, 'it is no JSON object')
  const wire = body as MessageWire
  if (wire.type === 'error' || isObject(wire.error)) throw reportedError(source, { reported: readReportedError(body) })
  if (!Array.isArray(wire.content)) throw malformedReply(source, 'it has no content')
  const isExact = text !== undefined && hasInexactInput(wire.content)
  const { content } = isExact ? (parseExactly(text) as { readonly content: readonly unknown[] }) : wire
  for (const block of content as readonly unknown[]) {
    if (!isObject(block)) throw malformedReply(source, 'a block of its content is no object')
    readBlock(draft, block)
  }
  keepBlocks(draft, wire.content as readonly JsonObject[])
  addUsage(draft, wire.usage)
  draft.finish = finishOf(draft, wire.stop_reason)
  readStopSequence(draft, wire.stop_sequence)
  return messagesReply(draft)
}

function hasInexactInput(content: readonly unknown[]): boolean {
  return content.some((block) => isObject(block) && hasInexactNumber((block as BlockWire).input))
}

function readBlock(draft: ReplyDraft, block: BlockWire): void {
  switch (block.type) {
    case 'text':
      draft.content = (draft.content ?? '') + textIn(draft, block.text)
      return
    case 'thinking': {
      const thought = textIn(draft, block.thinking)
      if (draft.reasoning !== '' && thought !== '') draft.reasoning += betweenThoughts
      draft.reasoning += thought
      return
    }
    case 'tool_use':
      draft.toolCall(beginCall(draft, block)).arguments = inputText(block.input)
      return
    default:
      // Redacted thinking, and blocks of tools that the server runs by itself: see `keepBlocks`.
      return
  }
}

/** The text of a block, which must be there: a reply with a hole in it is no reply. */
export function textIn(draft: ReplyDraft, text: unknown): string {
  if (typeof text === 'string') return text
  throw malformedReply(draft.source, 'a block of its content has no text')
}

/** Makes the next tool call and returns its number. */
export function beginCall(draft: ReplyDraft, { id, name }: BlockWire): number {
  const index = draft.toolCallCount
  const call = draft.toolCall(index)
  // Every call has an id from its first piece on, because the pieces may be passed on at once.
  call.id = textOrNothing(id) ?? draft.madeUpId(index)
  if (typeof name !== 'string' || name === '') throw malformedReply(draft.source, `tool call ${index} has no name`)
  call.name = name
  return index
}

/** The input of a call as the text of its arguments. */
export function inputText(input: unknown): string {
  return isObject(input) ? JSON.stringify(input) : '{}'
}

/**
 * Adds a report of usage. `input_tokens` does not include cached tokens, so the three are summed. A stream reports its usage
 * twice, cumulatively but not always with all numbers, so the larger number is the true one.
 */
export function addUsage(draft: ReplyDraft, usage: unknown): void {
  if (!isObject(usage)) return
  const wire = usage as UsageWire
  const details = wire.output_tokens_details as { thinking_tokens?: unknown } | null | undefined
  const cachedInput = tokenCount(wire.cache_read_input_tokens)
  const input = tokenCount(wire.input_tokens) + cachedInput + tokenCount(wire.cache_creation_input_tokens)
  const known = draft.usage
  const sum: Usage = {
    calls: 1,
    input: Math.max(known.input, input),
    cachedInput: Math.max(known.cachedInput, cachedInput),
    output: Math.max(known.output, tokenCount(wire.output_tokens)),
    reasoning: Math.max(known.reasoning, tokenCount(details?.thinking_tokens)),
  }
  draft.usage = sum
}

/** Reads which of the request's stop sequences ended the reply, if one did. */
export function readStopSequence(draft: ReplyDraft, sequence: unknown): void {
  if (typeof sequence === 'string') draft.stopSequence = sequence
}

/** How the reply ended, in the words that `finishReasonOf` knows; empty if the server did not say. */
export function finishOf(draft: ReplyDraft, stopReason: unknown): string {
  if (typeof stopReason !== 'string') return ''
  if (stopReason !== 'model_context_window_exceeded' && stopReason !== 'pause_turn') return stopReason
  // Both reasons mean that the reply stopped at a limit of the server and could go on, so it counts as cut off by length.
  // Clients of this API react to each reason differently, so the word is kept.
  draft.stopReason = stopReason
  return 'length'
}

/** The finished reply. Removes an empty text beside tool calls: some servers open such a turn with one. */
export function messagesReply(draft: ReplyDraft): BackendReply {
  if (draft.content === '' && draft.hasToolCalls) draft.content = null
  return draft.reply()
}
