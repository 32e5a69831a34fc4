import { MillraceError } from '../errors/index.ts'
import type { BackendReply, ReplyDelta } from '../inference/index.ts'
import type { JsonObject } from '../schema/index.ts'
import { isCut, responseDocument } from './_responses-document.ts'
import { itemName } from './_responses-ids.ts'
import type { ItemStatus, OutputItem } from './_responses-output.ts'
import { repeatItem } from './_responses-repeat.ts'
import { wantsEncryptedReasoning } from './_responses-request.ts'
import {
  EventList,
  StreamedCall,
  StreamedMessage,
  StreamedReasoning,
  type ItemPlace,
  type StreamedItem,
} from './_responses-stream-items.ts'
import type { ReplyHead, ReplyStreamWriter, WireEvent } from './server-dialect.ts'

/**
 * The events of one streamed reply. An item ends when the next one begins. A model that thinks again, or speaks after a
 * call, gets another item for that; when they are read back, they are one message again.
 */
export class ResponsesReplyStream implements ReplyStreamWriter {
  readonly #head: ReplyHead
  readonly #isEncrypted: boolean
  readonly #events = new EventList()
  /** The items that have not ended, oldest first: the last one, and before it calls that may continue. */
  #open: StreamedItem[] = []
  /** The calls by the backend's own numbers, whose limit is checked when replies are read. */
  readonly #calls = new Map<number, StreamedCall>()
  /** The items that have ended, by place. */
  readonly #output: OutputItem[] = []
  readonly #counts = { all: 0, rs: 0, msg: 0 }

  constructor(head: ReplyHead) {
    this.#head = head
    this.#isEncrypted = wantsEncryptedReasoning(head.request.body)
  }

  start(): WireEvent[] {
    const response = responseDocument(this.#head, [])
    this.#events.add('response.created', { response })
    this.#events.add('response.in_progress', { response })
    return this.#events.take()
  }

  delta(delta: ReplyDelta): WireEvent[] {
    switch (delta.kind) {
      case 'reasoning':
        if (delta.text !== '') this.#reasoning().add(delta.text)
        break
      case 'content':
        if (delta.text !== '') this.#message().add('output_text', delta.text)
        break
      case 'refusal':
        if (delta.text !== '') this.#message().add('refusal', delta.text)
        break
      case 'tool-call': {
        const place = this.#nextPlace(itemName(this.#head, 'fc', delta.index))
        const tool = this.#head.request.toolNames?.toolOf(delta.name)
        const call = new StreamedCall(this.#events, place, { id: delta.id, name: delta.name, tool })
        this.#calls.set(delta.index, this.#begun(call))
        break
      }
      case 'arguments': {
        const call = this.#calls.get(delta.index)
        if (!call || delta.text === '') break
        if (this.#open.includes(call)) call.add(delta.text)
        // A call that has ended had whole arguments: only space may follow, anything else contradicts what was sent.
        else if (delta.text.trim() !== '') throw contradiction(delta.index)
        break
      }
    }
    return this.#events.take()
  }

  repeat(output: readonly JsonObject[]): WireEvent[] {
    for (const item of output) {
      repeatItem(this.#events, item, this.#counts.all)
      this.#output[this.#counts.all] = item
      this.#counts.all += 1
    }
    return this.#events.take()
  }

  end(reply: BackendReply): WireEvent[] {
    if (this.#counts.all === 0) this.#message().add('output_text', '')
    const last = this.#open.at(-1)
    for (const item of this.#open) {
      this.#endItem(item, item === last && isCut(reply.finishReason) ? 'incomplete' : 'completed')
    }
    const response = responseDocument(this.#head, this.#output, reply)
    this.#events.add(isCut(reply.finishReason) ? 'response.incomplete' : 'response.completed', { response })
    return this.#events.take()
  }

  #reasoning(): StreamedReasoning {
    const last = this.#open.at(-1)
    if (last instanceof StreamedReasoning) return last
    return this.#begun(new StreamedReasoning(this.#events, this.#nextPlace(this.#nextId('rs')), this.#isEncrypted))
  }

  #message(): StreamedMessage {
    const last = this.#open.at(-1)
    if (last instanceof StreamedMessage) return last
    return this.#begun(new StreamedMessage(this.#events, this.#nextPlace(this.#nextId('msg'))))
  }

  /** The id of the next item. The first of a kind has no number, because there is nearly always only one. */
  #nextId(kind: 'rs' | 'msg'): string {
    const number = this.#counts[kind]
    this.#counts[kind] += 1
    return itemName(this.#head, kind, number === 0 ? undefined : number)
  }

  /** The place of a new item. Ends the open items, except for calls that are not whole: servers may write several at once. */
  #nextPlace(id: string): ItemPlace {
    this.#open = this.#open.filter((item) => {
      const mayGoOn = item instanceof StreamedCall && !item.isWhole
      if (!mayGoOn) this.#endItem(item, 'completed')
      return mayGoOn
    })
    const place = { item_id: id, output_index: this.#counts.all }
    this.#counts.all += 1
    return place
  }

  #begun<Item extends StreamedItem>(item: Item): Item {
    this.#open.push(item)
    return item
  }

  #endItem(item: StreamedItem, status: ItemStatus): void {
    this.#output[item.place.output_index] = item.end(status)
  }
}

function contradiction(call: number): MillraceError {
  const message = `the backend went on with the arguments of call ${call} after they were whole; ask again`
  return new MillraceError('model_malformed', message)
}
