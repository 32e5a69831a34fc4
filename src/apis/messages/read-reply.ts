import { parseExactly } from '../../kit/index.ts'
import { isJsonList, isJsonObject, type Json, type JsonObject } from '../../schema/index.ts'
import type { BackendReply } from '../backend.ts'
import { malformedReply } from '../errors/reply-errors.ts'
import { reportedIn } from '../errors/reported-error.ts'
import { isLossless, type MessagePart, type ReplyDraft, textOrUndefined, tokenCount } from '../reply-draft.ts'
import { hasInexactInput, inputJson } from '../tool-input.ts'

/** Reads a whole reply. `text` is the JSON of the body, for numbers that no double can hold. */
export function readMessagesReply(body: unknown, draft: ReplyDraft, text?: string): BackendReply {
  const { source } = draft
  if (!isJsonObject(body)) throw malformedReply(source, 'it is not a JSON object')
  if (body['type'] === 'error' || isJsonObject(body['error'])) throw reportedIn(source, body)
  if (!Array.isArray(body['content'])) throw malformedReply(source, 'it has no content')
  const isExact = text !== undefined && hasInexactInput(body['content'])
  const { content } = isExact ? (parseExactly(text) as { readonly content: readonly unknown[] }) : body
  for (const block of content as readonly unknown[]) {
    if (!isJsonObject(block)) throw malformedReply(source, 'a block of its content is not an object')
    readBlock(draft, block)
  }
  keepBlocks(draft, body['content'] as readonly JsonObject[])
  addUsage(draft, body['usage'])
  draft.finish = finishOf(draft, body['stop_reason'])
  if (typeof body['stop_sequence'] === 'string') draft.stopSequence = body['stop_sequence']
  return messagesReply(draft)
}

/** Redacted thinking, and blocks of tools that the server runs by itself, are left to `keepBlocks`. */
function readBlock(draft: ReplyDraft, block: JsonObject): void {
  const { type } = block
  if (type === 'text') draft.content = (draft.content ?? '') + textIn(draft, block['text'])
  else if (type === 'tool_use') draft.toolCall(beginCall(draft, block)).arguments = inputText(block['input'])
  else if (type === 'thinking') {
    const thought = textIn(draft, block['thinking'])
    if (draft.reasoning !== '' && thought !== '') draft.reasoning += thoughtSeparator
    draft.reasoning += thought
  }
}

/** The text of a block, which must be there: a reply with a hole in it is no reply. */
export function textIn(draft: ReplyDraft, text: unknown): string {
  if (typeof text === 'string') return text
  throw malformedReply(draft.source, 'a block of its content has no text')
}

export function beginCall(draft: ReplyDraft, { id, name }: JsonObject): number {
  const index = draft.toolCallCount
  const call = draft.toolCall(index)
  // Every call has an id from its first piece on, because the pieces may be passed on at once.
  call.id = textOrUndefined(id) ?? draft.syntheticId(index)
  if (typeof name !== 'string' || name === '') throw malformedReply(draft.source, `tool call ${index} has no name`)
  call.name = name
  return index
}

export function inputText(input: unknown): string {
  return isJsonObject(input) ? JSON.stringify(input) : '{}'
}

/** `input_tokens` lacks cached tokens. A stream reports its usage twice, not always in full, so the larger number counts. */
export function addUsage(draft: ReplyDraft, usage: unknown): void {
  if (!isJsonObject(usage)) return
  const details = usage['output_tokens_details'] as { thinking_tokens?: unknown } | null | undefined
  const cachedInput = tokenCount(usage['cache_read_input_tokens'])
  const input = tokenCount(usage['input_tokens']) + cachedInput + tokenCount(usage['cache_creation_input_tokens'])
  const known = draft.usage
  draft.usage = {
    calls: 1,
    input: Math.max(known.input, input),
    cachedInput: Math.max(known.cachedInput, cachedInput),
    output: Math.max(known.output, tokenCount(usage['output_tokens'])),
    reasoning: Math.max(known.reasoning, tokenCount(details?.thinking_tokens)),
  }
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
  if (draft.content === '' && draft.toolCallCount > 0) draft.content = null
  return draft.reply()
}

/** Separates two blocks of reasoning, which are two thoughts. Blocks of text are one text: citations cut it anywhere. */
export const thoughtSeparator = '\n\n'

/** The place of our own message that holds all of a block; undefined if none does. */
function blockPart({ type, signature, citations }: JsonObject): MessagePart | undefined {
  if (type === 'thinking') return typeof signature === 'string' && signature !== '' ? undefined : 'thought'
  if (type === 'text') return isJsonList(citations) && citations.length > 0 ? undefined : 'text'
  return type === 'tool_use' ? 'call' : undefined
}

type DraftText = Pick<ReplyDraft, 'content' | 'reasoning'>

/** One block of a stream. Text that goes into the message is not kept twice: the block only knows where it stands there. */
export class StreamedBlock {
  readonly call: number | undefined
  readonly start: JsonObject
  readonly #from: number
  #to: number
  /** The input of a tool that the server runs by itself. */
  #input = ''
  /** Fields that came in pieces and that a message has no place for: a signature, citations. */
  #rest: Record<string, Json> | undefined

  constructor(start: JsonObject, call: number | undefined, before: DraftText) {
    this.start = start
    this.call = call
    this.#from = this.#textIn(before).length
    this.#to = this.#from
  }

  addInput(text: string): void {
    this.#input += text
  }

  addRest(delta: JsonObject): void {
    this.#rest ??= {}
    const { type: _kind, citation, ...fields } = delta
    if (citation !== undefined) {
      const citations = this.#rest['citations']
      if (Array.isArray(citations)) citations.push(citation)
      else this.#rest['citations'] = [citation]
    }
    for (const [name, value] of Object.entries(fields)) {
      if (value === undefined) continue
      const before = this.#rest[name]
      this.#rest[name] = typeof before === 'string' && typeof value === 'string' ? before + value : value
    }
  }

  end(draft: ReplyDraft): void {
    this.#to = this.#textIn(draft).length
  }

  get shape(): JsonObject {
    return this.#rest ? { ...this.start, ...this.#rest } : this.start
  }

  whole(draft: ReplyDraft): JsonObject {
    const { type } = this.start
    const text = this.#textIn(draft).slice(this.#from, this.#to)
    if (type === 'text') return { ...this.shape, text }
    if (type === 'thinking') {
      const isAfter = this.#from > 0 && text.startsWith(thoughtSeparator)
      return { ...this.shape, thinking: isAfter ? text.slice(thoughtSeparator.length) : text }
    }
    const written = this.call === undefined ? this.#input : draft.toolCall(this.call).arguments
    return written === '' ? this.shape : { ...this.shape, input: JSON.parse(inputJson(written)) as Json }
  }

  #textIn({ content, reasoning }: DraftText): string {
    return this.start['type'] === 'thinking' ? reasoning : (content ?? '')
  }
}

/** Keeps a reply's blocks as they came if the message has no place for all of them. Only the message has exact inputs. */
function keepBlocks(draft: ReplyDraft, blocks: readonly JsonObject[]): void {
  if (isLossless(blocks, blockPart)) return
  for (const block of blocks) {
    const isKnown = block['type'] === 'text' || block['type'] === 'thinking' || block['type'] === 'tool_use'
    if (!isKnown) draft.addOther({ type: 'other', api: 'messages', value: block })
  }
  draft.original = { api: 'messages', output: blocks }
}

/** Keeps the blocks of a stream, by the same rule. */
export function keepStreamedBlocks(draft: ReplyDraft, streamed: readonly StreamedBlock[]): void {
  const shapes = streamed.map(({ shape }) => shape)
  if (isLossless(shapes, blockPart)) return
  const blocks = streamed.map((block) => block.whole(draft))
  keepBlocks(draft, blocks)
}
