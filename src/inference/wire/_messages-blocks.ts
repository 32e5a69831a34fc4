import { isJsonList, type Json, type JsonObject } from '../../schema/index.ts'
import { inputJson } from './_messages-request.ts'
import { fitsMessage, type MessagePlace } from './_fits-message.ts'
import type { ReplyDraft } from './_reply-draft.ts'

/** Between two blocks of reasoning, which are two thoughts. Blocks of text are one text: citations cut it anywhere. */
export const betweenThoughts = '\n\n'

/** Where a message of ours has what a block says, if it can hold all of it. */
function blockPlace({ type, signature, citations }: JsonObject): MessagePlace | undefined {
  if (type === 'thinking') return typeof signature === 'string' && signature !== '' ? undefined : 'thought'
  if (type === 'text') return isJsonList(citations) && citations.length > 0 ? undefined : 'text'
  return type === 'tool_use' ? 'call' : undefined
}

type SaidSoFar = Pick<ReplyDraft, 'content' | 'reasoning'>

/** One block of a stream. What of it goes into the message is not kept twice, but where it stands there. */
export class StreamedBlock {
  /** Its number among the tool calls; undefined for every other kind. */
  readonly call: number | undefined
  /** As it began. */
  readonly start: JsonObject
  /** Where its text begins in the message, and where it ends. */
  readonly #from: number
  #to: number
  /** The input of a tool that the server runs by itself. */
  #input = ''
  /** What came in pieces that a message has no place for: a signature, citations. */
  #rest: Record<string, Json> | undefined

  /** `before`: what was said until then. */
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

  /** Without what went into the message. */
  get shape(): JsonObject {
    return this.#rest ? { ...this.start, ...this.#rest } : this.start
  }

  /** All of it. */
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
 * Keeps what a message has no place for: blocks of other kinds, and all of them in their own words. Of the input of its calls
 * only the message has all: numbers that no double can hold, and what is no JSON.
 */
export function keepBlocks(draft: ReplyDraft, blocks: readonly JsonObject[]): void {
  if (fitsMessage(blocks, blockPlace)) return
  for (const block of blocks) {
    if (!isKnown(block)) draft.addOther({ type: 'other', api: 'messages', value: block })
  }
  draft.original = { api: 'messages', output: blocks }
}

/** The same of a stream, whose blocks came one after the other. */
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
