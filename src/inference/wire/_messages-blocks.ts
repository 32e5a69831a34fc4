import { isJsonList, type Json, type JsonObject } from '../../schema/index.ts'
import { inputJson } from './_messages-request.ts'
import { fitsMessage, type MessagePlace } from './_fits-message.ts'
import type { ReplyDraft } from './_reply-draft.ts'

/**
 * The separator between two blocks of reasoning, which are two thoughts. Blocks of text are one text: citations cut it
 * anywhere.
 */
export const betweenThoughts = '\n\n'

/** The place of our own message that holds all of a block; undefined if none does. */
function blockPlace({ type, signature, citations }: JsonObject): MessagePlace | undefined {
  if (type === 'thinking') return typeof signature === 'string' && signature !== '' ? undefined : 'thought'
  if (type === 'text') return isJsonList(citations) && citations.length > 0 ? undefined : 'text'
  return type === 'tool_use' ? 'call' : undefined
}

type SaidSoFar = Pick<ReplyDraft, 'content' | 'reasoning'>

/** One block of a stream. Text that goes into the message is not kept twice: the block only knows where it stands there. */
export class StreamedBlock {
  /** The block's number among the tool calls; undefined for other kinds of blocks. */
  readonly call: number | undefined
  /** The block as its first event had it. */
  readonly start: JsonObject
  /** Where the block's text begins in the message, and where it ends. */
  readonly #from: number
  #to: number
  /** The input of a tool that the server runs by itself. */
  #input = ''
  /** Fields that came in pieces and that a message has no place for: a signature, citations. */
  #rest: Record<string, Json> | undefined

  /** `before` is what the reply said before this block began. */
  constructor(start: JsonObject, call: number | undefined, before: SaidSoFar) {
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

  /** The block without the text that went into the message. */
  get shape(): JsonObject {
    return this.#rest ? { ...this.start, ...this.#rest } : this.start
  }

  /** The whole block, with its text from the message. */
  whole(draft: ReplyDraft): JsonObject {
    const { type } = this.start
    const text = this.#textIn(draft).slice(this.#from, this.#to)
    if (type === 'text') return { ...this.shape, text }
    if (type === 'thinking') {
      const isAfter = this.#from > 0 && text.startsWith(betweenThoughts)
      return { ...this.shape, thinking: isAfter ? text.slice(betweenThoughts.length) : text }
    }
    const written = this.call === undefined ? this.#input : draft.toolCall(this.call).arguments
    return written === '' ? this.shape : { ...this.shape, input: JSON.parse(inputJson(written)) as Json }
  }

  #textIn({ content, reasoning }: SaidSoFar): string {
    return this.start['type'] === 'thinking' ? reasoning : (content ?? '')
  }
}

/**
 * Keeps a reply's blocks if the message has no place for all of them: those of other kinds as parts of the message, and all
 * of them in their own words. The exact input of calls is only in the message, which has it as text: it may be no JSON, or
 * have numbers that no double can hold.
 */
export function keepBlocks(draft: ReplyDraft, blocks: readonly JsonObject[]): void {
  if (fitsMessage(blocks, blockPlace)) return
  for (const block of blocks) {
    if (!isKnown(block)) draft.addOther({ type: 'other', api: 'messages', value: block })
  }
  draft.original = { api: 'messages', output: blocks }
}

/** Keeps the blocks of a stream, by the same rule. */
export function keepStreamedBlocks(draft: ReplyDraft, streamed: readonly StreamedBlock[]): void {
  if (
    fitsMessage(
      streamed.map(({ shape }) => shape),
      blockPlace,
    )
  ) {
    return
  }
  keepBlocks(
    draft,
    streamed.map((block) => block.whole(draft)),
  )
}

function isKnown({ type }: JsonObject): boolean {
  return type === 'text' || type === 'thinking' || type === 'tool_use'
}
