import { isJsonObject, type JsonObject } from '../../schema/index.ts'
import { isJson } from '../../kit/index.ts'
import type { BackendReply, PartialReply } from '../backend.ts'
import { type EventDraft, parseEvent, type StreamAssembler } from '../client-side.ts'
import { type ReplyDraft, textOrUndefined } from '../reply-draft.ts'
import { truncatedReply } from '../errors/reply-errors.ts'
import { reportedIn } from '../errors/reported-error.ts'
import { scanReply, type TokenArrays, minScannedBytes } from '../tokens/token-scanner.ts'
import { ChatExtras, readContent, readEnd, readReasoning, readTokens, readToolCall, readUsage } from './read-reply.ts'

/**
 * A Chat Completions stream. It is complete when a finish reason was seen: `[DONE]` without one only says that the
 * server stopped sending, and a stream cut after it has lost nothing but the usage. Only the first choice is read. If several
 * were asked for, all must have finished, or `[DONE]` must have come: some servers send one choice whatever they are asked.
 */
export class ChatStream implements StreamAssembler {
  readonly #draft: ReplyDraft
  readonly #wantsTokens: boolean
  readonly #extras = new ChatExtras()
  readonly #indexes: CallIndexes
  #hasPieces = false
  /** The numbers of the other choices that are yet to finish. */
  readonly #unfinished: Set<unknown>
  hasOutput = false

  constructor(draft: ReplyDraft, wantsTokens: boolean, choices = 1) {
    this.#draft = draft
    this.#indexes = new CallIndexes(draft)
    this.#wantsTokens = wantsTokens
    this.#unfinished = new Set(Array.from({ length: choices - 1 }, (_, index) => index + 1))
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
    const tokensBefore = draft.tokens.length
    // Events with a few tokens are parsed as they are. Events with a whole prompt, or all experts, are scanned first.
    const isLong = this.#wantsTokens && data.length >= minScannedBytes
    const scanned = isLong ? scanReply(Buffer.from(data)) : undefined
    const text = scanned?.rest ?? data
    const chunk = parseEvent(text, draft.source)
    event?.parsed(chunk, text)
    const { error, usage, prompt_token_ids: promptIds, choices } = chunk
    if (error !== undefined && error !== null) {
      throw reportedIn(draft.source, chunk)
    }
    if (isJsonObject(usage)) draft.usage = readUsage(usage)
    draft.readVersion(chunk)
    if (Array.isArray(promptIds)) draft.tokens.setPromptIds(promptIds)
    // The lists that were taken out belong to the first choice. The ids of a prompt may come in an event without any choice.
    let taken = scanned?.tokens
    for (const choice of Array.isArray(choices) ? (choices as readonly unknown[]) : []) {
      if (!isJsonObject(choice)) continue
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

  /** Removes an empty content beside tool calls: several servers open every stream with one. */
  #tidyUp(): void {
    this.#draft.orderCalls()
    if (this.#draft.content === '' && this.#draft.toolCallCount > 0) this.#draft.content = null
  }

  #choice(choice: JsonObject, taken: TokenArrays | undefined, event: EventDraft | undefined): void {
    const { index, finish_reason: finish, delta } = choice
    if (typeof index === 'number' && index !== 0) {
      if (textOrUndefined(finish) !== undefined) this.#unfinished.delete(index)
      return
    }
    const draft = this.#draft
    const piece = isJsonObject(delta) ? delta : this.#wholeIn(choice)
    if (piece) {
      this.#hasPieces = true
      this.#delta(piece, event)
    }
    readTokens(draft, choice, taken)
    readEnd(draft, choice)
  }

  /** The whole message in the last event of a server that does not really stream: its events before hold parts of the same. */
  #wholeIn({ message, finish_reason: finish }: JsonObject): JsonObject | undefined {
    return !this.#hasPieces && isJsonObject(message) && textOrUndefined(finish) !== undefined ? message : undefined
  }

  #delta(delta: JsonObject, event: EventDraft | undefined): void {
    const draft = this.#draft
    // If one event has both reasoning and content, the reasoning comes first.
    const reasoning = readReasoning(draft, delta)
    if (reasoning !== undefined) {
      draft.reasoning += reasoning
      this.hasOutput = true
      event?.say('reasoning', reasoning)
    }
    const content = readContent(delta['content'])
    if (content !== null) {
      draft.content = (draft.content ?? '') + content
      if (content !== '') this.hasOutput = true
      event?.say('content', content)
    }
    if (typeof delta['refusal'] === 'string') {
      draft.refusal += delta['refusal']
      event?.say('refusal', delta['refusal'])
    }
    this.#extras.add(delta)
    if (!Array.isArray(delta['tool_calls'])) return
    for (const call of delta['tool_calls'] as readonly unknown[]) {
      if (!isJsonObject(call)) continue
      this.hasOutput = true
      const index = this.#indexes.indexOf(call)
      const drafted = draft.toolCall(index)
      const piece = readToolCall(drafted, call)
      // A sink is not told of custom tools: only a client that speaks Chat itself can have asked for one.
      if (!event || drafted.input !== undefined) continue
      if (drafted.isReported) event.sayArguments(index, piece)
      else this.#tellBeginning(event, index)
    }
  }

  /** Tells the sink of a call once its name is known, together with the arguments that came before the name. */
  #tellBeginning(event: EventDraft, index: number): void {
    const call = this.#draft.toolCall(index)
    if (call.name === '') return
    call.isReported = true
    // The sink is told this id, so it stays, even if the server sends one later.
    if (call.id === '') call.id = this.#draft.syntheticId(index)
    event.beginCall(index, call)
    event.sayArguments(index, call.arguments)
  }
}

/**
 * Finds the tool call that a piece of a Chat stream belongs to. Calls are placed in the order in which they begin. Usually
 * the server's own numbers tell the calls apart, and give their order: some servers count from 1, or count all blocks of a
 * reply. Some servers give every call the same number: then a new call begins with another name, together with another id or
 * after the call before is whole. Some servers give no numbers: then a new id also begins a call.
 */
class CallIndexes {
  readonly #draft: ReplyDraft
  readonly #byNumber = new Map<unknown, number>()
  /** The ids that the server gave the calls; empty for a call without one. */
  readonly #ids: string[] = []

  constructor(draft: ReplyDraft) {
    this.#draft = draft
  }

  indexOf(piece: JsonObject): number {
    const id = textOrUndefined(piece['id']) ?? ''
    const isNumbered = piece['index'] !== undefined && piece['index'] !== null
    const known = isNumbered ? this.#byNumber.get(piece['index']) : this.#unnumbered(id)
    const isNew = known === undefined || this.#isAnother(known, id, piece['function'])
    const index = isNew ? this.#draft.toolCallCount : known
    if (isNew && isNumbered) this.#byNumber.set(piece['index'], index)
    if (isNew && typeof piece['index'] === 'number') this.#draft.toolCall(index).number = piece['index']
    this.#ids[index] ||= id
    return index
  }

  /** A new id begins a call; a piece without an id belongs to the last call. */
  #unnumbered(id: string): number | undefined {
    const index = id === '' ? this.#draft.toolCallCount - 1 : this.#ids.indexOf(id)
    return index === -1 ? undefined : index
  }

  /**
   * Whether a piece begins another call. Only a piece with a name can, and a new id alone never does: a server may give each
   * piece of one call an id of its own, or repeat the name in each piece, or both.
   */
  #isAnother(index: number, id: string, called: unknown): boolean {
    const { name, arguments: written } = isJsonObject(called) ? called : {}
    const before = this.#draft.toolCall(index)
    const idBefore = this.#ids[index]
    if (textOrUndefined(name) === undefined || before.name === '' || (id !== '' && id === idBefore)) return false
    const isNamedAnew = name !== before.name
    // The pieces of one call never change both the name and the id.
    if (isNamedAnew && id !== '' && idBefore) return true
    // Text after a whole JSON object cannot be part of that object.
    const isWritten = isJsonObject(written) || (typeof written === 'string' && /\S/.test(written))
    return (isNamedAnew || isWritten) && before.arguments.trimEnd().endsWith('}') && isJson(before.arguments)
  }
}
