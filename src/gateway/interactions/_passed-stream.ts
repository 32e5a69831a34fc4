import type { ReplyEvent } from '../../inference/index.ts'
import { sseEvent } from '../../kit/index.ts'
import type { ClientApi, ItemIds } from '../../schema/index.ts'
import type { ClientStream } from './_client-stream.ts'
import { itemIdsIn } from './_item-ids.ts'
import type { ClientView } from './_client-view.ts'

interface EventWire {
  readonly type?: unknown
  readonly id?: unknown
  /** The reply's document, in the first event of a Responses or a Messages stream. */
  readonly response?: unknown
  readonly message?: unknown
  /** What SGLang says about its reply in its own API. */
  readonly meta_info?: unknown
}

/** The events that clients wait for after the one that says how a reply ended. A backend may be cut off between the two. */
const lastEvents: Readonly<Record<ClientApi, string>> = {
  chat: sseEvent('[DONE]'),
  messages: sseEvent('{"type":"message_stop"}', 'message_stop'),
  responses: '',
  generate: sseEvent('[DONE]'),
}

/** Line ends, which a line of an event must not contain. Outside of strings in JSON they are space. */
const lineEnd = /[\r\n]/

/**
 * A stream whose client speaks the backend's API: events are passed on as they came. From the one on that says how the reply
 * ended they are held back; these are few, and the size of a reply is bounded where it is read. The very last event is not
 * passed on but written by `end`: `[DONE]` without a finish before it is no end.
 */
export class PassedStream implements ClientStream {
  readonly #api: ClientApi
  readonly #view: ClientView | undefined
  #replyId: string | undefined
  #itemIds: ItemIds | undefined
  #kept = ''

  constructor(api: ClientApi, view: ClientView | undefined) {
    this.#api = api
    this.#view = view
  }

  get replyId(): string | undefined {
    return this.#replyId
  }

  get itemIds(): ItemIds | undefined {
    return this.#itemIds
  }

  start(): string {
    return ''
  }

  event({ data, document, isEnd }: ReplyEvent): string {
    if (!document) return ''
    this.#replyId ??= replyIdIn(document)
    const text = this.#text(data, document)
    if (!isEnd) return text
    if (this.#api === 'responses') this.#itemIds ??= itemIdsIn(document)
    this.#kept += text
    return ''
  }

  end(): string {
    return this.#kept + lastEvents[this.#api]
  }

  #text(data: string, document: object): string {
    const seen = this.#view ? this.#view.of(document) : document
    if (!seen) return ''
    const { type }: EventWire = document
    if (type === 'message_stop') return ''
    // A backend may write an event over several lines.
    const written = seen !== document || lineEnd.test(data) ? JSON.stringify(seen) : data
    const hasName = this.#api !== 'chat' && typeof type === 'string' && !lineEnd.test(type)
    return sseEvent(written, hasName ? type : undefined)
  }
}

/** The backend's id of a reply, from a whole reply or the first event of a stream. */
export function replyIdIn(document: object): string | undefined {
  const { id, response, message, meta_info: meta }: EventWire = document
  if (typeof id === 'string' && id !== '') return id
  for (const inner of [response, message, meta]) {
    if (typeof inner === 'object' && inner !== null && 'id' in inner && typeof inner.id === 'string') return inner.id
  }
  return undefined
}
