import { isJsonObject, type JsonObject } from '../../schema/index.ts'
import type { Unasked } from './_unasked.ts'

interface ResponseWire {
  readonly object?: unknown
  /** The reply's document, in some events of a stream. */
  readonly response?: unknown
}

/** Replies of a backend that was sent a whole conversation, with the name of the earlier reply that the client gave. */
export class WentOnFrom implements Unasked {
  readonly #name: JsonObject

  constructor(replyId: string) {
    this.#name = { previous_response_id: replyId }
  }

  without(document: object): object {
    const { object, response }: ResponseWire = document
    if (isJsonObject(response)) return { ...document, response: { ...response, ...this.#name } }
    return object === 'response' ? { ...document, ...this.#name } : document
  }
}
