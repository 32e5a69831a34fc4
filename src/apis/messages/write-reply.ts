import type { BackendReply, ReplyDelta } from '../backend.ts'
import { isJson } from '../../kit/index.ts'
import { type AssistantMessage, emptyUsage, isJsonList, type JsonObject, type Usage } from '../../schema/index.ts'
import { messagesError } from '../errors/error-replies.ts'
import type { CountingServerDialect, ReplyHead, ReplyStreamWriter, ServerSentEvent } from '../server-side.ts'
import { toolInput, toolInputText } from '../tool-input.ts'
import { readCountedMessages, readMessagesRequest } from './read-request.ts'

export const messagesServer: CountingServerDialect = {
  api: 'messages',
  read: readMessagesRequest,
  counting: { api: 'messages', read: readCountedMessages, whole: (tokens) => ({ input_tokens: tokens }) },
  whole: wholeMessagesReply,
  stream: (head) => new MessagesReplyStream(head),
  streamedArguments: toolInputText,
  error: messagesError,
  streamError: (error) => ({ name: 'error', data: messagesError(error).body }),
}

/** Stands in for Anthropic's signature, which nothing checks here: some clients send thinking back only with one. */
const noSignature = 'unsigned'

const stopReasons = {
  stop: 'end_turn',
  length: 'max_tokens',
  tool_calls: 'tool_use',
  content_filter: 'refusal',
} as const

function wholeMessagesReply(head: ReplyHead, reply: BackendReply): Record<string, unknown> {
  return messageFields(head, { content: blocksOf(reply), ...endFields(reply), usage: wholeUsage(reply.usage) })
}

/** The head of a streamed message. Its usage is zero: backends count at the end, so the numbers come with the stop reason. */
function begunMessage(head: ReplyHead): Record<string, unknown> {
  const end = { stop_reason: null, stop_sequence: null, stop_details: null, container: null }
  return messageFields(head, { content: [], ...end, usage: wholeUsage(emptyUsage()) })
}

function messageFields({ id, model }: ReplyHead, rest: Record<string, unknown>): Record<string, unknown> {
  return { id, type: 'message', role: 'assistant', model, ...rest, diagnostics: null }
}

/** This API writes a refusal as plain text; only the stop reason shows that it is one. */
function endFields({ message, finishReason, stopSequence, stopReason }: BackendReply): Record<string, unknown> {
  const isSequence = stopSequence !== undefined && finishReason === 'stop'
  const reason = isSequence ? 'stop_sequence' : (stopReason ?? stopReasons[finishReason])
  return {
    stop_reason: message.refusal === undefined ? reason : 'refusal',
    stop_sequence: isSequence ? stopSequence : null,
    stop_details: null,
    container: null,
  }
}

/** The usage at the end of a stream. This API counts input from a cache separately. */
function messagesUsage({ input, cachedInput, output, reasoning }: Usage): Record<string, unknown> {
  return {
    input_tokens: Math.max(0, input - cachedInput),
    cache_creation_input_tokens: 0,
    cache_read_input_tokens: cachedInput,
    output_tokens: output,
    output_tokens_details: { thinking_tokens: reasoning },
    server_tool_use: null,
  }
}

function wholeUsage(usage: Usage): Record<string, unknown> {
  return { ...messagesUsage(usage), cache_creation: null, inference_geo: null, service_tier: null, speed: null }
}

function blocksOf({ message, original }: BackendReply): readonly Record<string, unknown>[] {
  if (original?.api === 'messages') return ownBlocks(original.output, message)
  const blocks: Record<string, unknown>[] = []
  if (message.reasoning_content)
    blocks.push({ type: 'thinking', thinking: message.reasoning_content, signature: noSignature })
  for (const text of [message.content, message.refusal]) if (text) blocks.push({ type: 'text', text, citations: null })
  for (const { id, function: called } of message.tool_calls ?? []) {
    blocks.push(toolUse(id, called.name, toolInput(called.arguments)))
  }
  return blocks
}

/** The blocks as the server wrote them, with the input of calls from the message, whose numbers are exact. */
function ownBlocks(output: readonly JsonObject[], message: AssistantMessage): readonly JsonObject[] {
  const calls = message.tool_calls?.values()
  return output.map((block) => {
    const call = block['type'] === 'tool_use' ? calls?.next().value : undefined
    return call ? { ...block, input: toolInput(call.function.arguments) } : block
  })
}

function toolUse(id: string, name: string, input: JsonObject): Record<string, unknown> {
  return { type: 'tool_use', id, name, input, caller: { type: 'direct' } }
}

type Fields = Record<string, unknown>
type BlockKind = Exclude<ReplyDelta['kind'], 'arguments'>

interface OpenCall {
  readonly index: number
  written: string
  /** Whether the last piece ends with a brace, as an object does. Else the arguments cannot be whole, and are not parsed. */
  mayBeWhole: boolean
}

const emptyThinking: Fields = { type: 'thinking', thinking: '', signature: '' }
const emptyText: Fields = { type: 'text', text: '', citations: null }

/** The events of one streamed reply: one block after another, each opened by the first delta that belongs to it. */
class MessagesReplyStream implements ReplyStreamWriter {
  readonly #head: ReplyHead
  #index = -1
  #open: BlockKind | undefined
  #call: OpenCall | undefined
  /** Held back until the open call is whole: a backend may write two calls at once, but an ended block counts as whole. */
  #buffered: ReplyDelta[] = []

  constructor(head: ReplyHead) {
    this.#head = head
  }

  start(): ServerSentEvent[] {
    return [event('message_start', { message: begunMessage(this.#head) })]
  }

  delta(delta: ReplyDelta): ServerSentEvent[] {
    if (this.#isInTheWay(delta)) {
      this.#buffered.push(delta)
      return []
    }
    const events = this.#write(delta)
    return this.#buffered.length > 0 && isComplete(this.#call) ? [...events, ...this.#release()] : events
  }

  repeat(output: readonly JsonObject[], message: AssistantMessage): ServerSentEvent[] {
    const events: ServerSentEvent[] = []
    for (const block of ownBlocks(output, message)) {
      const { begun, deltas } = blockPieces(block)
      this.#index += 1
      events.push(event('content_block_start', { index: this.#index, content_block: begun }))
      for (const delta of deltas) events.push(this.#deltaEvent(delta))
      events.push(event('content_block_stop', { index: this.#index }))
    }
    return events
  }

  end(reply: BackendReply): ServerSentEvent[] {
    const events: ServerSentEvent[] = []
    // Nothing more comes, so the open call is as whole as it gets.
    while (this.#buffered.length > 0) events.push(...this.#release())
    return [
      ...events,
      ...this.#closeBlock(),
      event('message_delta', { delta: endFields(reply), usage: messagesUsage(reply.usage) }),
      event('message_stop', {}),
    ]
  }

  #isInTheWay(delta: ReplyDelta): boolean {
    if (!this.#call) return false
    const isOfIt = delta.kind === 'arguments' && delta.index === this.#call.index
    return !isOfIt && (this.#buffered.length > 0 || !isComplete(this.#call))
  }

  #release(): ServerSentEvent[] {
    const buffered = this.#buffered
    this.#buffered = []
    this.#call = undefined
    return buffered.flatMap((delta) => this.delta(delta))
  }

  #write(delta: ReplyDelta): ServerSentEvent[] {
    if (delta.kind === 'tool-call') {
      const { index, id, name } = delta
      const events = this.#openBlock('tool-call', toolUse(id, name, {}))
      this.#call = { index, written: '', mayBeWhole: false }
      return events
    }
    if (delta.text === '') return []
    if (delta.kind === 'arguments') {
      if (this.#call?.index !== delta.index) return []
      this.#call.written += delta.text
      const trimmed = delta.text.trimEnd()
      if (trimmed !== '') this.#call.mayBeWhole = trimmed.endsWith('}')
      return [this.#deltaEvent({ type: 'input_json_delta', partial_json: delta.text })]
    }
    const { kind, text } = delta
    const isThought = kind === 'reasoning'
    const events = this.#open === kind ? [] : this.#openBlock(kind, isThought ? emptyThinking : emptyText)
    const piece = isThought ? { type: 'thinking_delta', thinking: text } : { type: 'text_delta', text }
    return [...events, this.#deltaEvent(piece)]
  }

  #openBlock(kind: BlockKind, block: Fields): ServerSentEvent[] {
    const events = this.#closeBlock()
    this.#open = kind
    this.#index += 1
    events.push(event('content_block_start', { index: this.#index, content_block: block }))
    return events
  }

  #closeBlock(): ServerSentEvent[] {
    if (this.#open === undefined) return []
    const events =
      this.#open === 'reasoning' ? [this.#deltaEvent({ type: 'signature_delta', signature: noSignature })] : []
    this.#open = undefined
    this.#call = undefined
    events.push(event('content_block_stop', { index: this.#index }))
    return events
  }

  #deltaEvent(delta: Fields): ServerSentEvent {
    return event('content_block_delta', { index: this.#index, delta })
  }
}

function isComplete(call: OpenCall | undefined): boolean {
  return call === undefined || (call.mayBeWhole && isJson(call.written))
}

function event(type: string, fields: Fields): ServerSentEvent {
  return { name: type, data: { type, ...fields } }
}

/** A whole block as the pieces of a stream: an empty block, then its deltas. A block of an unknown kind begins whole. */
function blockPieces(block: JsonObject): { readonly begun: JsonObject; readonly deltas: readonly JsonObject[] } {
  const { type, text, thinking, signature, citations, input } = block
  if (type === 'text') {
    const cited = isJsonList(citations) ? citations : []
    const deltas = cited.map((citation) => ({ type: 'citations_delta', citation }))
    const begun = { ...block, text: '', ...(cited.length > 0 && { citations: [] }) }
    return { begun, deltas: [{ type: 'text_delta', text }, ...deltas] }
  }
  if (type === 'thinking') {
    const signed = { type: 'signature_delta', signature }
    return { begun: { ...block, thinking: '', signature: '' }, deltas: [{ type: 'thinking_delta', thinking }, signed] }
  }
  if (input === undefined) return { begun: block, deltas: [] }
  return {
    begun: { ...block, input: {} },
    deltas: [{ type: 'input_json_delta', partial_json: JSON.stringify(input) }],
  }
}
