import type { BackendReply, PartialReply } from '../backend.ts'
import { malformedReply, notJson, truncatedReply } from './broken-reply.ts'
import { CallPlaces } from './_call-places.ts'
import { ChatExtras } from './_chat-extras.ts'
import {
  readContent,
  readEnd,
  readReasoning,
  readTokens,
  readToolCall,
  readUsage,
  type ChatChoiceWire,
  type ChatMessageWire,
  type ChatReplyWire,
} from './_chat-reply.ts'
import type { StreamAssembler } from './dialect.ts'
import type { EventDraft } from './event-draft.ts'
import type { ReplyDraft } from './_reply-draft.ts'
import { scanReply, worthScanningBytes, type TokenArrays } from '../tokens/token-scanner.ts'
import { isObject, textOrNothing } from './foreign-json.ts'
import { reportedError, readReportedError } from './reported-error.ts'
import type { Source } from './source.ts'

/**
 * A Chat Completions stream. It is complete when a finish reason was seen: `[DONE]` without one only says that the
 * server stopped sending, and a stream cut after it has lost nothing but the usage. Only the first choice is read. If several
 * were asked for, all must have finished, or `[DONE]` must have come: some servers send one choice whatever they are asked.
 */
export class ChatStream implements StreamAssembler {
  readonly #draft: ReplyDraft
  readonly #wantsTokens: boolean
  readonly #extras = new ChatExtras()
  /** Made with the first tool call, because most replies have none. */
  #places: CallPlaces | undefined
  #hasPieces = false
  /** The numbers of the other choices that are yet to finish. */
  readonly #unfinished: Set<unknown>
  hasOutput = false

  constructor(draft: ReplyDraft, wantsTokens: boolean, choices = 1) {
    this.#draft = draft
    this.#wantsTokens = wantsTokens
    this.#unfinished = choices === 1 ? noChoices : new Set(Array.from({ length: choices - 1 }, (_, index) => index + 1))
  }

  get isComplete(): boolean {
    return this.#draft.finish !== '' && this.#unfinished.size === 0
  }

  onEvent(data: string, event?: EventDraft): void {
    if (data === '[DONE]') {
      this.#unfinished.clear()
      return
    }
    const draft = this.#draft
    const tokensBefore = draft.tokenCount
    // Events with a few tokens are parsed as they are. Events with a whole prompt, or all experts, are scanned first.
    const isLong = this.#wantsTokens && data.length >= worthScanningBytes
    const scanned = isLong ? scanReply(Buffer.from(data)) : undefined
    const text = scanned?.rest ?? data
    const chunk = parseEvent(text, draft.source)
    event?.parsed(chunk, text)
    const wire = chunk as ChatReplyWire
    if (wire.error !== undefined && wire.error !== null) {
      throw reportedError(draft.source, { reported: readReportedError(chunk) })
    }
    if (isObject(wire.usage)) draft.usage = readUsage(wire.usage)
    draft.readVersion(chunk)
    if (Array.isArray(wire.prompt_token_ids)) draft.tokens.setPromptIds(wire.prompt_token_ids)
    const choices: readonly unknown[] = Array.isArray(wire.choices) ? wire.choices : []
    // The lists that were taken out belong to the first choice. The ids of a prompt may come in an event without any choice.
    let taken = scanned?.tokens
    for (const choice of choices) {
      if (!isObject(choice)) continue
      this.#choice(choice, taken, event)
      taken = undefined
    }
    if (taken) draft.tokens.add(taken)
    draft.endTokens(tokensBefore)
  }

  reply(): BackendReply {
    if (this.#unfinished.size > 0) throw truncatedReply(this.#draft.source, 'not all of its choices ended')
    this.#tidyUp()
    this.#extras.keepIn(this.#draft)
    return this.#draft.reply()
  }

  partial(): PartialReply {
    this.#tidyUp()
    return this.#draft.partial()
  }

  /**
   * Removes an empty content beside tool calls: several servers open every stream with one, and whole replies then have
   * none.
   */
  #tidyUp(): void {
    this.#draft.orderCalls()
    if (this.#draft.content === '' && this.#draft.hasToolCalls) this.#draft.content = null
  }

  #choice(choice: ChatChoiceWire, taken: TokenArrays | undefined, event: EventDraft | undefined): void {
    if (typeof choice.index === 'number' && choice.index !== 0) {
      if (textOrNothing(choice.finish_reason) !== undefined) this.#unfinished.delete(choice.index)
      return
    }
    const draft = this.#draft
    const piece = isObject(choice.delta) ? choice.delta : this.#wholeIn(choice)
    if (piece) {
      this.#hasPieces = true
      this.#delta(piece, event)
    }
    readTokens(draft, choice, taken)
    readEnd(draft, choice)
  }

  /** The whole message in the last event of a server that does not really stream: its events before hold parts of the same. */
  #wholeIn({ message, finish_reason: finish }: ChatChoiceWire): ChatMessageWire | undefined {
    return !this.#hasPieces && isObject(message) && textOrNothing(finish) !== undefined ? message : undefined
  }

  #delta(delta: ChatMessageWire, event: EventDraft | undefined): void {
    const draft = this.#draft
    // If one event has both reasoning and content, the reasoning comes first.
    const reasoning = readReasoning(draft, delta)
    if (reasoning !== undefined) {
      draft.reasoning += reasoning
      this.hasOutput = true
      event?.say('reasoning', reasoning)
    }
    const content = readContent(delta.content)
    if (content !== null) {
      draft.content = (draft.content ?? '') + content
      if (content !== '') this.hasOutput = true
      event?.say('content', content)
    }
    if (typeof delta.refusal === 'string') {
      draft.refusal += delta.refusal
      event?.say('refusal', delta.refusal)
    }
    this.#extras.add(delta)
    if (!Array.isArray(delta.tool_calls)) return
    for (const call of delta.tool_calls as readonly unknown[]) {
      if (!isObject(call)) continue
      this.hasOutput = true
      this.#places ??= new CallPlaces(draft)
      const index = this.#places.placeOf(call)
      const drafted = draft.toolCall(index)
      const piece = readToolCall(drafted, call)
      // A sink is not told of custom tools: only a client that speaks Chat itself can have asked for one.
      if (!event || drafted.input !== undefined) continue
      if (drafted.isTold) event.sayArguments(index, piece)
      else this.#tellBeginning(event, index)
    }
  }

  /** Tells the sink of a call once its name is known, together with the arguments that came before the name. */
  #tellBeginning(event: EventDraft, index: number): void {
    const call = this.#draft.toolCall(index)
    if (call.name === '') return
    call.isTold = true
    // The sink is told this id, so it stays, even if the server sends one later.
    if (call.id === '') call.id = this.#draft.madeUpId(index)
    event.beginCall(index, call)
    event.sayArguments(index, call.arguments)
  }
}

/** Always empty: most requests are for one choice. */
const noChoices = new Set<unknown>()

/** The JSON object that an event of a stream carries. */
export function parseEvent(data: string, source: Source): object {
  let parsed: unknown
  try {
    parsed = JSON.parse(data)
  } catch {
    throw notJson(source, 'an event of the stream', data)
  }
  if (!isObject(parsed)) throw malformedReply(source, 'an event of the stream is no JSON object')
  return parsed
}
