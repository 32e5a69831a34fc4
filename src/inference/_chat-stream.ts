import type { BackendReply } from './backend.ts'
import { malformedReply } from './broken-reply.ts'
import {
  readContent,
  readReasoning,
  readTokens,
  readToolCall,
  readUsage,
  type ChatChoiceWire,
  type ChatMessageWire,
  type ChatReplyWire,
  type ChatToolCallWire,
} from './_chat-reply.ts'
import type { StreamAssembler } from './dialect.ts'
import type { ReplyDraft } from './_reply-draft.ts'
import { scanReply, worthScanningBytes } from './_token-scanner.ts'
import { isObject } from './_wire.ts'
import { reportedError, readReportedError } from './reported-error.ts'
import type { Source } from './source.ts'

/**
 * A Chat Completions stream. It is complete when a finish reason was seen: `[DONE]` without one only says that the
 * server stopped sending, and a stream cut after it has lost nothing but the usage.
 */
export class ChatStream implements StreamAssembler {
  readonly #draft: ReplyDraft
  readonly #wantsTokens: boolean
  hasOutput = false

  constructor(draft: ReplyDraft, wantsTokens: boolean) {
    this.#draft = draft
    this.#wantsTokens = wantsTokens
  }

  get isComplete(): boolean {
    return this.#draft.finish !== ''
  }

  onEvent(data: string): void {
    if (data === '[DONE]') return
    const draft = this.#draft
    // A few tokens are read from the document as they are; an event that brings a whole prompt, or all experts, is not.
    const isLong = this.#wantsTokens && data.length >= worthScanningBytes
    const scanned = isLong ? scanReply(Buffer.from(data)) : undefined
    const chunk = parseEvent(scanned?.rest ?? data, draft.source)
    if (scanned) draft.tokens.add(scanned.tokens)
    const wire = chunk as ChatReplyWire
    if (wire.error !== undefined && wire.error !== null) {
      throw reportedError(draft.source, { reported: readReportedError(chunk) })
    }
    if (isObject(wire.usage)) draft.usage = readUsage(wire.usage)
    draft.readVersion(chunk)
    if (Array.isArray(wire.prompt_token_ids)) draft.tokens.setPromptIds(wire.prompt_token_ids)
    if (!Array.isArray(wire.choices)) return
    for (const choice of wire.choices as readonly unknown[]) if (isObject(choice)) this.#choice(choice)
  }

  reply(): BackendReply {
    // Several servers open every stream with an empty content; a whole reply that only calls tools has none.
    if (this.#draft.content === '' && this.#draft.hasToolCalls) this.#draft.content = null
    return this.#draft.reply()
  }

  #choice(choice: ChatChoiceWire): void {
    if (typeof choice.index === 'number' && choice.index !== 0) return
    const draft = this.#draft
    if (isObject(choice.delta)) this.#delta(choice.delta)
    readTokens(draft, choice)
    if (typeof choice.finish_reason === 'string') draft.finish = choice.finish_reason
  }

  #delta(delta: ChatMessageWire): void {
    const draft = this.#draft
    const content = readContent(delta.content)
    if (content !== null) {
      draft.content = (draft.content ?? '') + content
      if (content !== '') this.hasOutput = true
    }
    const reasoning = readReasoning(delta)
    if (reasoning !== undefined) {
      draft.reasoning += reasoning
      this.hasOutput = true
    }
    if (typeof delta.refusal === 'string') draft.refusal += delta.refusal
    if (!Array.isArray(delta.tool_calls)) return
    for (const call of delta.tool_calls as readonly unknown[]) {
      if (!isObject(call)) continue
      this.hasOutput = true
      readToolCall(draft, this.#place(call), call)
    }
  }

  /** Pieces are told apart by index. Without one, an id begins a new call and anything else goes on with the last. */
  #place(call: ChatToolCallWire): number {
    if (typeof call.index === 'number') return call.index
    const { toolCallCount } = this.#draft
    return typeof call.id === 'string' && call.id !== '' ? toolCallCount : Math.max(0, toolCallCount - 1)
  }
}

/** The JSON object that an event of a stream carries. */
export function parseEvent(data: string, source: Source): object {
  let parsed: unknown
  try {
    parsed = JSON.parse(data)
  } catch (error) {
    throw malformedReply(source, `an event of the stream is no JSON: ${data.slice(0, 80)}`, error)
  }
  if (!isObject(parsed)) throw malformedReply(source, 'an event of the stream is no JSON object')
  return parsed
}
