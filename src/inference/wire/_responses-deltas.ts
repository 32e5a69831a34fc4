import type { PartialReply } from '../backend.ts'
import type { AnswerContext } from './dialect.ts'
import type { EventDraft } from './event-draft.ts'
import { ReplyDraft } from './_reply-draft.ts'
import { argumentsOf, betweenParts, readItem, type OutputItemWire } from './_responses-reply.ts'
import type { Source } from './source.ts'
import { isObject, textOrNothing } from './foreign-json.ts'

export interface ResponsesEventWire {
  type?: unknown
  response?: unknown
  item?: unknown
  delta?: unknown
  output_index?: unknown
  content_index?: unknown
  summary_index?: unknown
}

/** One item of the output, and how much of it a sink was told. */
interface ToldItem {
  /** The item's place among the tool calls, once it has begun as one. */
  call: number | undefined
  chars: number
  /** The number of the last part of the reasoning. */
  part: number
  /** Whether the reasoning itself came: then its summary is left out, as in a whole response. */
  hasReasoning: boolean
}

/**
 * Finds what each event of a Responses stream adds to the reply, for a sink. Servers differ in how much they send in pieces:
 * whatever an item holds at its end and was not told before is told then. The state is a few numbers per item and the text
 * so far; both are bounded by the bytes a stream may have.
 */
export class ResponsesDeltas {
  readonly #source: Source
  readonly #said: ReplyDraft
  readonly #items = new Map<number, ToldItem>()
  #calls = 0

  constructor(source: Source, context: AnswerContext) {
    this.#source = source
    this.#said = new ReplyDraft(source, context)
  }

  partial(): PartialReply {
    return this.#said.partial()
  }

  /** Adds to the event the deltas that it holds. */
  read(wire: ResponsesEventWire, event: EventDraft): void {
    this.#tell(wire, event)
    for (const delta of event.deltas) this.#said.add(delta)
  }

  #tell(wire: ResponsesEventWire, event: EventDraft): void {
    const { item } = wire
    switch (wire.type) {
      case 'response.output_item.added':
        if (isObject(item)) this.#begin(this.#told(wire), item, event)
        return
      case 'response.output_item.done':
        if (isObject(item)) this.#end(this.#told(wire), item, event)
        return
      case 'response.output_text.delta':
        event.say('content', this.#piece(wire))
        return
      case 'response.refusal.delta':
        event.say('refusal', this.#piece(wire))
        return
      case 'response.reasoning_text.delta':
        this.#reason(wire, wire.content_index, event)
        return
      case 'response.reasoning_summary_text.delta':
        if (!this.#told(wire).hasReasoning) this.#reason(wire, wire.summary_index, event)
        return
      case 'response.function_call_arguments.delta': {
        const { call } = this.#told(wire)
        // The arguments of a call that has not begun are told at its end.
        if (call !== undefined) event.sayArguments(call, this.#piece(wire))
        return
      }
      case 'response.completed':
      case 'response.incomplete':
        if (isObject(wire.response)) this.#endAll(wire.response, event)
        return
      default:
        return
    }
  }

  #told({ output_index: index }: ResponsesEventWire): ToldItem {
    const place = typeof index === 'number' ? index : 0
    let told = this.#items.get(place)
    if (!told) {
      told = { call: undefined, chars: 0, part: 0, hasReasoning: false }
      this.#items.set(place, told)
    }
    return told
  }

  #piece(wire: ResponsesEventWire): string {
    const piece = typeof wire.delta === 'string' ? wire.delta : ''
    this.#told(wire).chars += piece.length
    return piece
  }

  /** A call begins when its name is known. */
  #begin(told: ToldItem, item: OutputItemWire, event: EventDraft): void {
    const name = textOrNothing(item.name)
    if (item.type !== 'function_call' || name === undefined || told.call !== undefined) return
    told.call = this.#calls
    this.#calls += 1
    event.beginCall(told.call, { id: textOrNothing(item.call_id) ?? this.#said.madeUpId(told.call), name })
  }

  #reason(wire: ResponsesEventWire, part: unknown, event: EventDraft): void {
    const told = this.#told(wire)
    const isNext = typeof part === 'number' && part > told.part
    if (isNext) told.part = part
    told.hasReasoning ||= wire.type === 'response.reasoning_text.delta'
    event.say('reasoning', isNext ? `${betweenParts}${this.#piece(wire)}` : this.#piece(wire))
  }

  #end(told: ToldItem, item: OutputItemWire, event: EventDraft): void {
    if (item.type === 'function_call') {
      this.#begin(told, item, event)
      if (told.call !== undefined) event.sayArguments(told.call, argumentsOf(item).slice(told.chars))
    } else if (told.chars === 0) {
      const whole = new ReplyDraft(this.#source)
      readItem(whole, item)
      event.say('reasoning', whole.reasoning)
      event.say('content', whole.content ?? '')
      event.say('refusal', whole.refusal)
      for (const part of whole.message().others ?? []) this.#said.addOther(part)
    }
  }

  /** Tells the whole output at its end, if the server sent no pieces. */
  #endAll(response: object, event: EventDraft): void {
    const { output } = response as { output?: unknown }
    if (this.#items.size > 0 || !Array.isArray(output)) return
    for (const [index, item] of output.entries() as Iterable<[number, unknown]>) {
      if (isObject(item)) this.#end(this.#told({ output_index: index }), item, event)
    }
  }
}
