import { isJsonObject, type JsonObject } from '../../schema/index.ts'
import type { BackendReply, PartialReply } from '../backend.ts'
import { type AnswerContext, type EventDraft, parseEvent, type StreamAssembler } from '../client-side.ts'
import { ReplyDraft, textOrUndefined } from '../reply-draft.ts'
import { malformedReply, type Source, truncatedReply } from '../errors/reply-errors.ts'
import { reportedIn } from '../errors/reported-error.ts'
import { argumentsOf, betweenParts, readItem, readResponse } from './read-reply.ts'

/** Its last event carries the whole response, so deltas are read only for a sink, and to know when output began. */
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

  #take(event: JsonObject): void {
    const { type, response, item } = event
    if (typeof type === 'string' && type.endsWith('.delta')) this.hasOutput = true
    if (type === 'response.output_item.done') this.#items.push(item)
    else if (type === 'response.completed' || type === 'response.incomplete') {
      if (isJsonObject(response)) this.#response = this.#withOutput(response)
    } else if (type === 'response.failed') throw reportedIn(this.#source, response)
    // The event's own type is "error", which does not say which error it is.
    else if (type === 'error') throw reportedIn(this.#source, { ...event, type: undefined })
  }

  reply(): BackendReply {
    if (!this.#response) throw truncatedReply(this.#source, 'it ended without response.completed')
    return readResponse(this.#response, this.#source, this.#context)
  }

  partial(): PartialReply {
    return this.#deltas?.partial() ?? { message: { role: 'assistant', content: null } }
  }

  #withOutput(response: JsonObject): object {
    const { output } = response
    if (Array.isArray(output) && output.length > 0) return response
    if (this.hasOutput && this.#items.length === 0)
      throw malformedReply(this.#source, 'its stream has output, but no complete item')
    return { ...response, output: this.#items }
  }
}

interface ReportedItem {
  /** The item's place among the tool calls, once it has begun as one. */
  call: number | undefined
  chars: number
  part: number
  /** Whether the reasoning itself came: then its summary is left out, as in a whole response. */
  hasReasoning: boolean
}

/** Finds what each event adds to the reply, for a sink. What an item holds at its end and was not told before is told then. */
class ResponsesDeltas {
  readonly #source: Source
  readonly #draft: ReplyDraft
  readonly #items = new Map<number, ReportedItem>()
  #calls = 0

  constructor(source: Source, context: AnswerContext) {
    this.#source = source
    this.#draft = new ReplyDraft(source, context)
  }

  partial(): PartialReply {
    return this.#draft.partial()
  }

  read(wire: JsonObject, event: EventDraft): void {
    this.#tell(wire, event)
    for (const delta of event.deltas) this.#draft.add(delta)
  }

  #tell(wire: JsonObject, event: EventDraft): void {
    const { type, item, response } = wire
    if (type === 'response.output_item.added' && isJsonObject(item)) this.#begin(this.#reported(wire), item, event)
    else if (type === 'response.output_item.done' && isJsonObject(item)) this.#end(this.#reported(wire), item, event)
    else if (type === 'response.output_text.delta') event.say('content', this.#piece(wire))
    else if (type === 'response.refusal.delta') event.say('refusal', this.#piece(wire))
    else if (type === 'response.reasoning_text.delta') this.#reason(wire, wire['content_index'], event)
    else if (type === 'response.reasoning_summary_text.delta') {
      if (!this.#reported(wire).hasReasoning) this.#reason(wire, wire['summary_index'], event)
    } else if (type === 'response.function_call_arguments.delta') {
      const { call } = this.#reported(wire)
      // The arguments of a call that has not begun are told at its end.
      if (call !== undefined) event.sayArguments(call, this.#piece(wire))
    } else if (type === 'response.completed' || type === 'response.incomplete') {
      if (isJsonObject(response)) this.#endAll(response, event)
    }
  }

  #reported({ output_index: index }: JsonObject): ReportedItem {
    const place = typeof index === 'number' ? index : 0
    let reported = this.#items.get(place)
    if (!reported) {
      reported = { call: undefined, chars: 0, part: 0, hasReasoning: false }
      this.#items.set(place, reported)
    }
    return reported
  }

  #piece(wire: JsonObject): string {
    const piece = typeof wire['delta'] === 'string' ? wire['delta'] : ''
    this.#reported(wire).chars += piece.length
    return piece
  }

  #begin(reported: ReportedItem, item: JsonObject, event: EventDraft): void {
    const name = textOrUndefined(item['name'])
    if (item['type'] !== 'function_call' || name === undefined || reported.call !== undefined) return
    reported.call = this.#calls
    this.#calls += 1
    event.beginCall(reported.call, {
      id: textOrUndefined(item['call_id']) ?? this.#draft.syntheticId(reported.call),
      name,
    })
  }

  #reason(wire: JsonObject, part: unknown, event: EventDraft): void {
    const reported = this.#reported(wire)
    const isNext = typeof part === 'number' && part > reported.part
    if (isNext) reported.part = part
    reported.hasReasoning ||= wire['type'] === 'response.reasoning_text.delta'
    event.say('reasoning', isNext ? `${betweenParts}${this.#piece(wire)}` : this.#piece(wire))
  }

  #end(reported: ReportedItem, item: JsonObject, event: EventDraft): void {
    if (item['type'] === 'function_call') {
      this.#begin(reported, item, event)
      if (reported.call !== undefined) event.sayArguments(reported.call, argumentsOf(item).slice(reported.chars))
    } else if (reported.chars === 0) {
      const whole = new ReplyDraft(this.#source)
      readItem(whole, item)
      event.say('reasoning', whole.reasoning)
      event.say('content', whole.content ?? '')
      event.say('refusal', whole.refusal)
      for (const part of whole.message().others ?? []) this.#draft.addOther(part)
    }
  }

  /** Tells the whole output at its end, if the server sent no pieces. */
  #endAll(response: object, event: EventDraft): void {
    const { output } = response as { output?: unknown }
    if (this.#items.size > 0 || !Array.isArray(output)) return
    for (const [index, item] of output.entries() as Iterable<[number, unknown]>) {
      if (isJsonObject(item)) this.#end(this.#reported({ output_index: index }), item, event)
    }
  }
}
