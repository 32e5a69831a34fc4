import { MillraceError } from '../../errors/index.ts'
import type { BackendReply, ReplyDelta } from '../backend.ts'
import type { JsonObject } from '../../schema/index.ts'
import { openAiError, openAiErrorFields } from '../errors/error-replies.ts'
import type { CountingServerDialect, ReplyHead, ReplyStreamWriter, ServerSentEvent } from '../server-side.ts'
import { readResponsesRequest, wantsEncryptedReasoning } from './read-request.ts'
import {
  EventList,
  type ItemPosition,
  repeatItem,
  StreamedCall,
  type StreamedItem,
  StreamedMessage,
  StreamedReasoning,
} from './stream-items.ts'
import {
  isTruncated,
  itemName,
  type ItemStatus,
  type OutputItem,
  outputItems,
  responseDocument,
} from './write-reply.ts'

/** The sequence number of an error, which is always the last event. Clients insist on a number, and some keep it in 32 bits. */
const afterAll = 2 ** 31 - 1

export const responsesServer: CountingServerDialect = {
  api: 'responses',
  read: readResponsesRequest,
  counting: {
    api: 'responses',
    read: (body, before) => ({ ...readResponsesRequest(body, before), stream: false }),
    whole: (tokens) => ({ object: 'response.input_tokens', input_tokens: tokens }),
  },
  whole: wholeResponse,
  stream: (head) => new ResponsesReplyStream(head),
  error: openAiError,
  streamError(error) {
    const fields = openAiErrorFields(error)
    // The fields are documented flat, but OpenAI itself sends them nested; clients look for one or the other.
    return { name: 'error', data: { ...fields, type: 'error', sequence_number: afterAll, error: fields } }
  },
}

function wholeResponse(head: ReplyHead, reply: BackendReply): Record<string, unknown> {
  const { original } = reply
  const isOwn = original?.api === 'responses'
  const output = isOwn ? original.output : outputItems(head, reply, wantsEncryptedReasoning(head.request.body))
  return responseDocument(head, output, reply)
}

/**
 * The events of one streamed reply. An item ends when the next one begins. A model that thinks again, or speaks after a
 * call, gets another item for that; when they are read back, they are one message again.
 */
class ResponsesReplyStream implements ReplyStreamWriter {
  readonly #head: ReplyHead
  readonly #isEncrypted: boolean
  readonly #events = new EventList()
  /** The items that have not ended, oldest first: the last one, and before it calls that may continue. */
  #open: StreamedItem[] = []
  /** The calls by the backend's own numbers, whose limit is checked when replies are read. */
  readonly #calls = new Map<number, StreamedCall>()
  readonly #output: OutputItem[] = []
  readonly #counts = { all: 0, rs: 0, msg: 0 }

  constructor(head: ReplyHead) {
    this.#head = head
    this.#isEncrypted = wantsEncryptedReasoning(head.request.body)
  }

  start(): ServerSentEvent[] {
    const response = responseDocument(this.#head, [])
    this.#events.add('response.created', { response })
    this.#events.add('response.in_progress', { response })
    return this.#events.take()
  }

  delta(delta: ReplyDelta): ServerSentEvent[] {
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
        const position = this.#nextPosition(itemName(this.#head, 'fc', delta.index))
        const tool = this.#head.request.toolNames?.toolOf(delta.name)
        const call = new StreamedCall(this.#events, position, { id: delta.id, name: delta.name, tool })
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

  repeat(output: readonly JsonObject[]): ServerSentEvent[] {
    for (const item of output) {
      repeatItem(this.#events, item, this.#counts.all)
      this.#output[this.#counts.all] = item
      this.#counts.all += 1
    }
    return this.#events.take()
  }

  end(reply: BackendReply): ServerSentEvent[] {
    if (this.#counts.all === 0) this.#message().add('output_text', '')
    const last = this.#open.at(-1)
    for (const item of this.#open) {
      this.#endItem(item, item === last && isTruncated(reply.finishReason) ? 'incomplete' : 'completed')
    }
    const response = responseDocument(this.#head, this.#output, reply)
    this.#events.add(isTruncated(reply.finishReason) ? 'response.incomplete' : 'response.completed', { response })
    return this.#events.take()
  }

  #reasoning(): StreamedReasoning {
    const last = this.#open.at(-1)
    if (last instanceof StreamedReasoning) return last
    return this.#begun(new StreamedReasoning(this.#events, this.#nextPosition(this.#nextId('rs')), this.#isEncrypted))
  }

  #message(): StreamedMessage {
    const last = this.#open.at(-1)
    if (last instanceof StreamedMessage) return last
    return this.#begun(new StreamedMessage(this.#events, this.#nextPosition(this.#nextId('msg'))))
  }

  /** The id of the next item. The first of a kind has no number, because there is nearly always only one. */
  #nextId(kind: 'rs' | 'msg'): string {
    const number = this.#counts[kind]
    this.#counts[kind] += 1
    return itemName(this.#head, kind, number === 0 ? undefined : number)
  }

  /** The place of a new item. Ends the open items, except for calls that are not whole: servers may write several at once. */
  #nextPosition(id: string): ItemPosition {
    this.#open = this.#open.filter((item) => {
      const mayGoOn = item instanceof StreamedCall && !item.isComplete
      if (!mayGoOn) this.#endItem(item, 'completed')
      return mayGoOn
    })
    const position = { item_id: id, output_index: this.#counts.all }
    this.#counts.all += 1
    return position
  }

  #begun<Item extends StreamedItem>(item: Item): Item {
    this.#open.push(item)
    return item
  }

  #endItem(item: StreamedItem, status: ItemStatus): void {
    this.#output[item.position.output_index] = item.end(status)
  }
}

function contradiction(call: number): MillraceError {
  const message = `the backend sent more arguments of call ${call} after they were complete; try again`
  return new MillraceError('model_malformed', message)
}
