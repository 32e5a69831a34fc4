import type { BackendReply, PartialReply } from '../backend.ts'
import { malformedReply, truncatedReply } from './broken-reply.ts'
import { parseEvent } from './_chat-stream.ts'
import type { AnswerContext, StreamAssembler } from './dialect.ts'
import type { EventDraft } from './event-draft.ts'
import { ResponsesDeltas, type ResponsesEventWire } from './_responses-deltas.ts'
import { readResponse } from './_responses-reply.ts'
import { isObject } from './foreign-json.ts'
import { reportedError, readReportedError } from './reported-error.ts'
import type { Source } from './source.ts'

/**
 * A Responses stream. Its last event carries the whole response, so its deltas are read only for a sink, and to know when
 * output began.
 */
export class ResponsesStream implements StreamAssembler {
  readonly #source: Source
  readonly #context: AnswerContext
  /** The items that have ended, for servers whose last event leaves the output out. */
  readonly #items: unknown[] = []
  #response: object | undefined
  #deltas: ResponsesDeltas | undefined
  hasOutput = false

  constructor(source: Source, context: AnswerContext) {
    this.#source = source
    this.#context = context
  }

  get isComplete(): boolean {
    return this.#response !== undefined
  }

  onEvent(data: string, event?: EventDraft): void {
    if (data === '[DONE]') return
    const document = parseEvent(data, this.#source)
    this.#take(document)
    if (!event) return
    event.parsed(document, data)
    this.#deltas ??= new ResponsesDeltas(this.#source, this.#context)
    this.#deltas.read(document, event)
  }

  #take(event: object): void {
    const { type, response, item } = event as ResponsesEventWire
    if (typeof type === 'string' && type.endsWith('.delta')) this.hasOutput = true
    switch (type) {
      case 'response.output_item.done':
        this.#items.push(item)
        return
      case 'response.completed':
      case 'response.incomplete':
        if (isObject(response)) this.#response = this.#withOutput(response)
        return
      case 'response.failed':
        throw reportedError(this.#source, { reported: readReportedError(response) })
      case 'error':
        throw reportedError(this.#source, { reported: readReportedError(withoutType(event)) })
      default:
        return
    }
  }

  reply(): BackendReply {
    if (!this.#response) throw truncatedReply(this.#source, 'it ended without response.completed')
    return readResponse(this.#response, this.#source, this.#context)
  }

  partial(): PartialReply {
    return this.#deltas?.partial() ?? { message: { role: 'assistant', content: null } }
  }

  #withOutput(response: object): object {
    const { output } = response as { output?: unknown }
    if (Array.isArray(output) && output.length > 0) return response
    if (this.hasOutput && this.#items.length === 0) throw malformedReply(this.#source, 'no item of it has its pieces')
    return { ...response, output: this.#items }
  }
}

/** The error without the event's own `type`, which is "error" and does not say which error it is. */
function withoutType(event: object): object {
  const { type: _event, ...rest } = event as ResponsesEventWire
  return rest
}
