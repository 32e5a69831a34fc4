import { isJsonObject, type JsonObject } from '../../schema/index.ts'
import type { ClientView } from './_client-view.ts'

interface ResponseWire {
  readonly object?: unknown
  /** The reply's document, in some events of a stream. */
  readonly response?: unknown
}

/** With the id of the reply that the client goes on from: the backend was sent the whole conversation in its place. */
export class ContinuedView implements ClientView {
  readonly #fields: JsonObject

  constructor(replyId: string) {
    this.#fields = { previous_response_id: replyId }
  }

  of(document: object): object {
    const { object, response }: ResponseWire = document
    if (isJsonObject(response)) return { ...document, response: { ...response, ...this.#fields } }
    return object === 'response' ? { ...document, ...this.#fields } : document
  }
}
