import type { BackendReply, ReplyDelta } from '../inference/index.ts'
import { begunMessage, endFields, messagesUsage, signature, toolUse } from './_messages-reply.ts'
import type { ReplyHead, ReplyStreamWriter, WireEvent } from './server-dialect.ts'

type Fields = Record<string, unknown>
type BlockKind = Exclude<ReplyDelta['kind'], 'arguments'>

const emptyThinking: Fields = { type: 'thinking', thinking: '', signature: '' }
const emptyText: Fields = { type: 'text', text: '', citations: null }

/** The events of one streamed reply: one block after another, each opened by the first delta that belongs to it. */
export class MessagesReplyStream implements ReplyStreamWriter {
  readonly #head: ReplyHead
  /** Of the block that is open, or was last. */
  #index = -1
  #open: BlockKind | undefined
  /** Where the block of each call stands. At most as many as the reply may have calls. */
  readonly #callBlocks = new Map<number, number>()

  constructor(head: ReplyHead) {
    this.#head = head
  }

  start(): WireEvent[] {
    return [event('message_start', { message: begunMessage(this.#head) })]
  }

  delta(delta: ReplyDelta): WireEvent[] {
    if (delta.kind === 'tool-call') {
      const { index, id, name } = delta
      const events = this.#openBlock('tool-call', toolUse(id, name, {}))
      this.#callBlocks.set(index, this.#index)
      return events
    }
    if (delta.text === '') return []
    if (delta.kind === 'arguments') {
      // Also after the block was closed, should a backend write two calls at once: clients go by the index.
      const block = this.#callBlocks.get(delta.index)
      return [this.#deltaEvent({ type: 'input_json_delta', partial_json: delta.text }, block)]
    }
    return delta.kind === 'reasoning' ? this.#thinking(delta.text) : this.#text(delta.kind, delta.text)
  }

  end(reply: BackendReply): WireEvent[] {
    return [
      ...this.#closeBlock(),
      event('message_delta', { delta: endFields(reply), usage: messagesUsage(reply.usage) }),
      event('message_stop', {}),
    ]
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
    events.push(event('content_block_stop', { index: this.#index }))
    return events
  }

  #deltaEvent(delta: Fields, index = this.#index): WireEvent {
    return event('content_block_delta', { index, delta })
  }
}

function event(type: string, fields: Fields): WireEvent {
  return { name: type, data: { type, ...fields } }
}
