import { hasInexactNumber, isJson, parseExactly } from '../../kit/index.ts'
import { isJsonObject, type JsonObject } from '../../schema/index.ts'
import type { BackendReply, PartialReply } from '../backend.ts'
import { malformedReply, truncatedReply } from './broken-reply.ts'
import { parseEvent } from './_chat-stream.ts'
import type { StreamAssembler } from './dialect.ts'
import type { EventDraft } from './event-draft.ts'
import { finishReasonOf } from './_finish-reason.ts'
import { betweenThoughts, keepStreamedBlocks, StreamedBlock } from './_messages-blocks.ts'
import {
  addUsage,
  beginCall,
  finishOf,
  inputText,
  messagesReply,
  readStopSequence,
  textIn,
  type BlockWire,
  type MessageWire,
} from './_messages-reply.ts'
import type { ReplyDraft } from './_reply-draft.ts'
import { readReportedError, reportedError } from './reported-error.ts'
import { isObject } from './foreign-json.ts'

interface EventWire {
  type?: unknown
  index?: unknown
  message?: unknown
  content_block?: unknown
  delta?: unknown
  usage?: unknown
}

interface DeltaWire {
  type?: unknown
  text?: unknown
  thinking?: unknown
  partial_json?: unknown
  stop_reason?: unknown
  stop_sequence?: unknown
}

/** One after the other is the rule; that many at once are a broken stream. */
const maxOpenBlocks = 1024

/**
 * A Messages stream. It is complete when its stop reason was seen: what is cut after that has lost nothing but the usage,
 * and `message_stop` without one only says that something between here and the model stopped sending. Kinds of events, blocks and pieces that are not known are skipped, as the API asks of clients;
 * of those that are known, everything must make sense.
 */
export class MessagesStream implements StreamAssembler {
  readonly #draft: ReplyDraft
  readonly #open = new Map<number, StreamedBlock>()
  /** All of them, in order; none if they did not come one after the other. */
  #blocks: StreamedBlock[] | undefined = []
  #isNewThought = false
  hasOutput = false

  constructor(draft: ReplyDraft) {
    this.#draft = draft
  }

  get isComplete(): boolean {
    return this.#draft.finish !== ''
  }

  onEvent(data: string, event?: EventDraft): void {
    // Not of this API, but vLLM ends all its streams with it.
    if (data === '[DONE]') return
    const document = parseEvent(data, this.#draft.source)
    event?.parsed(document, data)
    let wire = document as EventWire
    // From a server that sends arguments whole.
    if (wire.type === 'content_block_start' && hasInexactNumber(wire.content_block))
      wire = parseExactly(data) as EventWire
    switch (wire.type) {
      case 'message_start':
        if (isObject(wire.message)) addUsage(this.#draft, (wire.message as MessageWire).usage)
        return
      case 'content_block_start':
        this.#begin(wire, event)
        return
      case 'content_block_delta':
        this.#goOn(wire, event)
        return
      case 'content_block_stop':
        this.#end(this.#indexOf(wire), event)
        return
      case 'message_delta':
        this.#endMessage(wire, event)
        return
      case 'message_stop':
        if (!this.isComplete) throw truncatedReply(this.#draft.source, 'it has message_stop, but no stop reason')
        return
      case 'error':
        throw reportedError(this.#draft.source, { reported: readReportedError(document) })
      default:
        return
    }
  }

  reply(): BackendReply {
    if (this.#blocks) keepStreamedBlocks(this.#draft, this.#blocks)
    return messagesReply(this.#draft)
  }

  partial(): PartialReply {
    return this.#draft.partial()
  }

  #begin(wire: EventWire, event: EventDraft | undefined): void {
    const index = this.#indexOf(wire)
    const draft = this.#draft
    if (!isJsonObject(wire.content_block))
      throw malformedReply(draft.source, `block ${index} of its stream is no object`)
    if (this.#open.size >= maxOpenBlocks) throw malformedReply(draft.source, 'its stream ends none of its blocks')
    const block: JsonObject & BlockWire = wire.content_block
    const before = { content: draft.content, reasoning: draft.reasoning }
    let call: number | undefined
    // A block begins empty; what a server sends along with its start counts all the same.
    if (block.type === 'text') this.#content(textIn(draft, block.text ?? ''), event)
    else if (block.type === 'thinking') {
      this.#isNewThought = draft.reasoning !== ''
      this.#reasoning(textIn(draft, block.thinking ?? ''), event)
    } else if (block.type === 'tool_use') {
      call = beginCall(draft, block)
      this.hasOutput = true
      event?.beginCall(call, draft.toolCall(call))
    }
    const begun = new StreamedBlock(block, call, before)
    if (this.#open.size > 0) this.#blocks = undefined
    this.#blocks?.push(begun)
    this.#open.set(index, begun)
  }

  #goOn(wire: EventWire, event: EventDraft | undefined): void {
    const index = this.#indexOf(wire)
    const draft = this.#draft
    if (!isJsonObject(wire.delta)) throw malformedReply(draft.source, `a piece of block ${index} is no object`)
    const delta: JsonObject & DeltaWire = wire.delta
    switch (delta.type) {
      case 'text_delta':
        this.#content(textIn(draft, delta.text), event)
        return
      case 'thinking_delta':
        this.#reasoning(textIn(draft, delta.thinking), event)
        return
      case 'input_json_delta':
        this.#arguments(index, textIn(draft, delta.partial_json), event)
        return
      default:
        // Signatures and citations among them.
        this.#open.get(index)?.addRest(delta)
    }
  }

  #content(text: string, event: EventDraft | undefined): void {
    const draft = this.#draft
    draft.content = (draft.content ?? '') + text
    if (text !== '') this.hasOutput = true
    event?.say('content', text)
  }

  #reasoning(text: string, event: EventDraft | undefined): void {
    if (text === '') return
    const said = this.#isNewThought ? betweenThoughts + text : text
    this.#isNewThought = false
    this.#draft.reasoning += said
    this.hasOutput = true
    event?.say('reasoning', said)
  }

  #arguments(index: number, text: string, event: EventDraft | undefined): void {
    const block = this.#open.get(index)
    if (!block) throw malformedReply(this.#draft.source, `arguments came for block ${index}, which is not open`)
    if (block.call === undefined) {
      block.addInput(text)
      return
    }
    this.#draft.toolCall(block.call).arguments += text
    event?.sayArguments(block.call, text)
  }

  #end(index: number, event: EventDraft | undefined): void {
    const block = this.#open.get(index)
    this.#open.delete(index)
    block?.end(this.#draft)
    if (block?.call === undefined) return
    const call = this.#draft.toolCall(block.call)
    if (call.arguments !== '') return
    // From a server that sends none in pieces, all of them were in its beginning.
    call.arguments = inputText(block.start['input'])
    event?.sayArguments(block.call, call.arguments)
  }

  #endMessage(wire: EventWire, event: EventDraft | undefined): void {
    addUsage(this.#draft, wire.usage)
    if (!isObject(wire.delta)) return
    const { stop_reason: reason, stop_sequence: sequence } = wire.delta as DeltaWire
    const finish = finishOf(this.#draft, reason)
    if (finish === '') return
    this.#finish(finish, event)
    readStopSequence(this.#draft, sequence)
  }

  /** A message that has ended has no open blocks, even if a server did not say so of each. */
  #finish(finish: string, event: EventDraft | undefined): void {
    for (const [index, block] of this.#open) {
      this.#end(index, event)
      this.#refuseHalfCall(block, finish)
    }
    this.#draft.finish = finish
  }

  /** A call that neither its block nor its text ends was cut, unless the model itself ran out of tokens in it. */
  #refuseHalfCall({ call: index }: StreamedBlock, finish: string): void {
    if (index === undefined || finishReasonOf(finish, true) !== 'tool_calls') return
    const call = this.#draft.toolCall(index)
    if (!isJson(call.arguments)) {
      throw truncatedReply(this.#draft.source, `it ended in the arguments of ${call.name}`)
    }
  }

  #indexOf({ type, index }: EventWire): number {
    if (typeof index === 'number') return index
    throw malformedReply(this.#draft.source, `${String(type)} without an index is in its stream`)
  }
}
