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

/** One item of the output, as far as a sink was told of it. */
interface ToldItem {
  /** Its place among the tool calls, if it is one and has begun. */
  call: number | undefined
  chars: number
  /** Which part of the reasoning came last. */
  part: number
  /** The reasoning itself came: its summary is then left out, as it is of a whole response. */
  hasReasoning: boolean
}

/**
 * What the events of a Responses stream add to the reply, for a sink. Servers differ in how much they send in pieces: what
 * an item turns out to hold at its end, and was not told before, is told then. It remembers a few numbers for each item
 * and what was said; both are bounded by the bytes a stream may have.
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

  /** Adds to the event what it says. */
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
        // Of a call that has not begun, they are told at its end.
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

  /** Of a server that sends nothing in pieces. */
  #endAll(response: object, event: EventDraft): void {
    const { output } = response as { output?: unknown }
    if (this.#items.size > 0 || !Array.isArray(output)) return
    for (const [index, item] of output.entries() as Iterable<[number, unknown]>) {
      if (isObject(item)) this.#end(this.#told({ output_index: index }), item, event)
    }
  }
}
