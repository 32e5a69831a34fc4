import type { BackendReply, ReplyDelta } from '../inference/index.ts'
import { isJson } from '../kit/index.ts'
import type { AssistantMessage, JsonObject } from '../schema/index.ts'
import { blockPieces } from './_messages-pieces.ts'
import { begunMessage, endFields, messagesUsage, ownBlocks, signature, toolUse } from './_messages-reply.ts'
import type { ReplyHead, ReplyStreamWriter, WireEvent } from './server-dialect.ts'

type Fields = Record<string, unknown>
type BlockKind = Exclude<ReplyDelta['kind'], 'arguments'>

/** The call whose block is open. */
interface OpenCall {
  readonly index: number
  /** The call's arguments so far. */
  written: string
  /** Whether the last piece ends with a brace, as an object does. Else the arguments cannot be whole, and are not parsed. */
  mayBeWhole: boolean
}

const emptyThinking: Fields = { type: 'thinking', thinking: '', signature: '' }
const emptyText: Fields = { type: 'text', text: '', citations: null }

/** The events of one streamed reply: one block after another, each opened by the first delta that belongs to it. */
export class MessagesReplyStream implements ReplyStreamWriter {
  readonly #head: ReplyHead
  /** The number of the block that is open, or was last. */
  #index = -1
  #open: BlockKind | undefined
  #call: OpenCall | undefined
  /**
   * Deltas held back until the open call is whole: a backend may write two calls at once, but clients take a block that
   * ended for whole.
   */
  #held: ReplyDelta[] = []

  constructor(head: ReplyHead) {
    this.#head = head
  }

  start(): WireEvent[] {
    return [event('message_start', { message: begunMessage(this.#head) })]
  }

  delta(delta: ReplyDelta): WireEvent[] {
    if (this.#isInTheWay(delta)) {
      this.#held.push(delta)
      return []
    }
    const events = this.#write(delta)
    return this.#held.length > 0 && isWhole(this.#call) ? [...events, ...this.#release()] : events
  }

  repeat(output: readonly JsonObject[], message: AssistantMessage): WireEvent[] {
    const events: WireEvent[] = []
    for (const block of ownBlocks(output, message)) {
      const { begun, deltas } = blockPieces(block)
      this.#index += 1
      events.push(event('content_block_start', { index: this.#index, content_block: begun }))
      for (const delta of deltas) events.push(this.#deltaEvent(delta))
      events.push(event('content_block_stop', { index: this.#index }))
    }
    return events
  }

  end(reply: BackendReply): WireEvent[] {
    const events: WireEvent[] = []
    // Nothing more comes, so the open call is as whole as it gets.
    while (this.#held.length > 0) events.push(...this.#release())
    return [
      ...events,
      ...this.#closeBlock(),
      event('message_delta', { delta: endFields(reply), usage: messagesUsage(reply.usage) }),
      event('message_stop', {}),
    ]
  }

  #isInTheWay(delta: ReplyDelta): boolean {
    if (!this.#call) return false
    const isOfIt = delta.kind === 'arguments' && delta.index === this.#call.index
    return !isOfIt && (this.#held.length > 0 || !isWhole(this.#call))
  }

  #release(): WireEvent[] {
    const held = this.#held
    this.#held = []
    this.#call = undefined
    return held.flatMap((delta) => this.delta(delta))
  }

  #write(delta: ReplyDelta): WireEvent[] {
    if (delta.kind === 'tool-call') {
      const { index, id, name } = delta
      const events = this.#openBlock('tool-call', toolUse(id, name, {}))
      this.#call = { index, written: '', mayBeWhole: false }
      return events
    }
    if (delta.text === '') return []
    if (delta.kind === 'arguments') {
      if (this.#call?.index !== delta.index) return []
      this.#call.written += delta.text
      const said = delta.text.trimEnd()
      if (said !== '') this.#call.mayBeWhole = said.endsWith('}')
      return [this.#deltaEvent({ type: 'input_json_delta', partial_json: delta.text })]
    }
    return delta.kind === 'reasoning' ? this.#thinking(delta.text) : this.#text(delta.kind, delta.text)
  }

  #thinking(text: string): WireEvent[] {
    const events = this.#open === 'reasoning' ? [] : this.#openBlock('reasoning', emptyThinking)
    events.push(this.#deltaEvent({ type: 'thinking_delta', thinking: text }))
    return events
  }

  #text(kind: 'content' | 'refusal', text: string): WireEvent[] {
    const events = this.#open === kind ? [] : this.#openBlock(kind, emptyText)
    events.push(this.#deltaEvent({ type: 'text_delta', text }))
    return events
  }

  #openBlock(kind: BlockKind, block: Fields): WireEvent[] {
    const events = this.#closeBlock()
    this.#open = kind
    this.#index += 1
    events.push(event('content_block_start', { index: this.#index, content_block: block }))
    return events
  }

  #closeBlock(): WireEvent[] {
    if (this.#open === undefined) return []
    const events = this.#open === 'reasoning' ? [this.#deltaEvent({ type: 'signature_delta', signature })] : []
    this.#open = undefined
    this.#call = undefined
    events.push(event('content_block_stop', { index: this.#index }))
    return events
  }

  #deltaEvent(delta: Fields): WireEvent {
    return event('content_block_delta', { index: this.#index, delta })
  }
}

function isWhole(call: OpenCall | undefined): boolean {
  return call === undefined || (call.mayBeWhole && isJson(call.written))
}

function event(type: string, fields: Fields): WireEvent {
  return { name: type, data: { type, ...fields } }
}
