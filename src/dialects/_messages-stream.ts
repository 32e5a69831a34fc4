import type { BackendReply, ReplyDelta } from '../inference/index.ts'
import { isJson } from '../kit/index.ts'
import { begunMessage, endFields, messagesUsage, signature, toolUse } from './_messages-reply.ts'
import type { ReplyHead, ReplyStreamWriter, WireEvent } from './server-dialect.ts'

type Fields = Record<string, unknown>
type BlockKind = Exclude<ReplyDelta['kind'], 'arguments'>

interface OpenCall {
  readonly block: number
  /** Its arguments so far. */
  written: string
}

const emptyThinking: Fields = { type: 'thinking', thinking: '', signature: '' }
const emptyText: Fields = { type: 'text', text: '', citations: null }

/** The events of one streamed reply: one block after another, each opened by the first delta that belongs to it. Only calls may overlap. */
export class MessagesReplyStream implements ReplyStreamWriter {
  readonly #head: ReplyHead
  /** Of the block that is open, or was last. */
  #index = -1
  #open: BlockKind | undefined
  /** Calls whose blocks are open, by their index in the backend's reply. */
  readonly #openCalls = new Map<number, OpenCall>()

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
      this.#openCalls.set(index, { block: this.#index, written: '' })
      return events
    }
    if (delta.text === '') return []
    if (delta.kind === 'arguments') {
      const call = this.#openCalls.get(delta.index)
      if (!call) return []
      call.written += delta.text
      return [this.#deltaEvent({ type: 'input_json_delta', partial_json: delta.text }, call.block)]
    }
    return delta.kind === 'reasoning' ? this.#thinking(delta.text) : this.#text(delta.kind, delta.text)
  }

  end(reply: BackendReply): WireEvent[] {
    return [
      ...this.#closeBlock(),
      ...this.#closeCalls(() => true),
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
    const open = this.#open
    this.#open = undefined
    if (open === undefined) return []
    if (open === 'tool-call') return this.#closeCalls(({ written }) => isJson(written))
    const events = open === 'reasoning' ? [this.#deltaEvent({ type: 'signature_delta', signature })] : []
    events.push(event('content_block_stop', { index: this.#index }))
    return events
  }

  /** A backend may write two calls at once, and clients take a block that has ended for whole: it ends when its arguments have. */
  #closeCalls(hasEnded: (call: OpenCall) => boolean): WireEvent[] {
    const events: WireEvent[] = []
    for (const [index, call] of this.#openCalls) {
      if (!hasEnded(call)) continue
      this.#openCalls.delete(index)
      events.push(event('content_block_stop', { index: call.block }))
    }
    return events
  }

  #deltaEvent(delta: Fields, index = this.#index): WireEvent {
    return event('content_block_delta', { index, delta })
  }
}

function event(type: string, fields: Fields): WireEvent {
  return { name: type, data: { type, ...fields } }
}
