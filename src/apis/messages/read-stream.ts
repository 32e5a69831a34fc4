import { hasInexactNumber, isJson, parseExactly } from '../../kit/index.ts'
import { isJsonObject, type JsonObject } from '../../schema/index.ts'
import type { BackendReply, PartialReply } from '../backend.ts'
import { malformedReply, truncatedReply } from '../errors/reply-errors.ts'
import { type EventDraft, parseEvent, type StreamAssembler } from '../client-side.ts'
import { finishReasonOf, type ReplyDraft } from '../reply-draft.ts'
import {
  addUsage,
  beginCall,
  thoughtSeparator,
  finishOf,
  inputText,
  keepStreamedBlocks,
  messagesReply,
  StreamedBlock,
  textIn,
} from './read-reply.ts'
import { reportedIn } from '../errors/reported-error.ts'

/** Blocks follow one another; a stream with this many open at once is broken. */
const maxOpenBlocks = 1024

/**
 * A Messages stream. It is complete once its stop reason was seen: if it is cut after that, only the usage is lost, and
 * `message_stop` without a reason only says that something between here and the model stopped sending. Unknown kinds of
 * events, blocks and pieces are skipped, as the API asks of clients; known ones must be well-formed.
 */
export class MessagesStream implements StreamAssembler {
  readonly #draft: ReplyDraft
  readonly #open = new Map<number, StreamedBlock>()
  /** All blocks in order; undefined if blocks were open at the same time. */
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
    // `[DONE]` is not part of this API, but vLLM ends all its streams with it.
    if (data === '[DONE]') return
    const document = parseEvent(data, this.#draft.source)
    event?.parsed(document, data)
    let wire = document
    // Some servers send the whole arguments with the block's start, which may have numbers that no double can hold.
    if (wire['type'] === 'content_block_start' && hasInexactNumber(wire['content_block']))
      wire = parseExactly(data) as JsonObject
    const { type, message } = wire
    if (type === 'message_start' && isJsonObject(message)) addUsage(this.#draft, message['usage'])
    else if (type === 'content_block_start') this.#begin(wire, event)
    else if (type === 'content_block_delta') this.#goOn(wire, event)
    else if (type === 'content_block_stop') this.#end(this.#indexOf(wire), event)
    else if (type === 'message_delta') this.#endMessage(wire, event)
    else if (type === 'message_stop' && !this.isComplete) {
      throw truncatedReply(this.#draft.source, 'it has message_stop, but no stop reason')
    } else if (type === 'error') throw reportedIn(this.#draft.source, document)
  }

  reply(): BackendReply {
    if (this.#blocks) keepStreamedBlocks(this.#draft, this.#blocks)
    return messagesReply(this.#draft)
  }

  partial(): PartialReply {
    return this.#draft.partial()
  }

  #begin(wire: JsonObject, event: EventDraft | undefined): void {
    const index = this.#indexOf(wire)
    const draft = this.#draft
    if (!isJsonObject(wire['content_block']))
      throw malformedReply(draft.source, `block ${index} of its stream is not an object`)
    if (this.#open.size >= maxOpenBlocks) throw malformedReply(draft.source, 'no block of its stream ends')
    const block: JsonObject = wire['content_block']
    const before = { content: draft.content, reasoning: draft.reasoning }
    let call: number | undefined
    // A block should begin empty, but text that a server sends with its start counts.
    if (block['type'] === 'text') this.#content(textIn(draft, block['text'] ?? ''), event)
    else if (block['type'] === 'thinking') {
      this.#isNewThought = draft.reasoning !== ''
      this.#reasoning(textIn(draft, block['thinking'] ?? ''), event)
    } else if (block['type'] === 'tool_use') {
      call = beginCall(draft, block)
      this.hasOutput = true
      event?.beginCall(call, draft.toolCall(call))
    }
    const begun = new StreamedBlock(block, call, before)
    if (this.#open.size > 0) this.#blocks = undefined
    this.#blocks?.push(begun)
    this.#open.set(index, begun)
  }

  #goOn(wire: JsonObject, event: EventDraft | undefined): void {
    const index = this.#indexOf(wire)
    const draft = this.#draft
    if (!isJsonObject(wire['delta'])) throw malformedReply(draft.source, `a piece of block ${index} is not an object`)
    const delta: JsonObject = wire['delta']
    const { type } = delta
    if (type === 'text_delta') this.#content(textIn(draft, delta['text']), event)
    else if (type === 'thinking_delta') this.#reasoning(textIn(draft, delta['thinking']), event)
    else if (type === 'input_json_delta') this.#arguments(index, textIn(draft, delta['partial_json']), event)
    else this.#open.get(index)?.addRest(delta)
  }

  #content(text: string, event: EventDraft | undefined): void {
    const draft = this.#draft
    draft.content = (draft.content ?? '') + text
    if (text !== '') this.hasOutput = true
    event?.say('content', text)
  }

  #reasoning(text: string, event: EventDraft | undefined): void {
    if (text === '') return
    const piece = this.#isNewThought ? thoughtSeparator + text : text
    this.#isNewThought = false
    this.#draft.reasoning += piece
    this.hasOutput = true
    event?.say('reasoning', piece)
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
    // A server that does not send the arguments in pieces has sent all of them with the block's start.
    call.arguments = inputText(block.start['input'])
    event?.sayArguments(block.call, call.arguments)
  }

  #endMessage(wire: JsonObject, event: EventDraft | undefined): void {
    addUsage(this.#draft, wire['usage'])
    if (!isJsonObject(wire['delta'])) return
    const { stop_reason: reason, stop_sequence: sequence } = wire['delta']
    const finish = finishOf(this.#draft, reason)
    if (finish === '') return
    // Not every server ends each of its blocks.
    for (const [index, block] of this.#open) {
      this.#end(index, event)
      this.#refuseHalfCall(block, finish)
    }
    this.#draft.finish = finish
    if (typeof sequence === 'string') this.#draft.stopSequence = sequence
  }

  /** Refuses a call whose block did not end and whose arguments are no whole JSON, unless tokens ran out. */
  #refuseHalfCall({ call: index }: StreamedBlock, finish: string): void {
    if (index === undefined || finishReasonOf(finish, true) !== 'tool_calls') return
    const call = this.#draft.toolCall(index)
    if (!isJson(call.arguments)) {
      throw truncatedReply(this.#draft.source, `it ended within the arguments of ${call.name}`)
    }
  }

  #indexOf({ type, index }: JsonObject): number {
    if (typeof index === 'number') return index
    throw malformedReply(this.#draft.source, `${JSON.stringify(type)} without an index is in its stream`)
  }
}
