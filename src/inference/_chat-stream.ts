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
  type ChatToolCallWire,
} from './_chat-reply.ts'
import type { StreamAssembler } from './dialect.ts'
import { ReplyDraft } from './_reply-draft.ts'
import { isObject } from './_wire.ts'
import { reportedError, readReportedError } from './reported-error.ts'
import type { ResponseHeaders } from './retry-after.ts'
import type { Source } from './source.ts'

interface ChunkWire {
  choices?: unknown
  usage?: unknown
  error?: unknown
  prompt_token_ids?: unknown
}

/**
 * A Chat Completions stream. It is complete when a finish reason was seen: `[DONE]` without one only says that the
 * server stopped sending, and a stream cut after it has lost nothing but the usage.
 */
export class ChatStream implements StreamAssembler {
  readonly #draft: ReplyDraft
  hasOutput = false

  constructor(source: Source, headers: ResponseHeaders) {
    this.#draft = new ReplyDraft(source, headers)
  }

  get isComplete(): boolean {
    return this.#draft.finish !== ''
  }

  onEvent(data: string): void {
    if (data === '[DONE]') return
    const draft = this.#draft
    const chunk = parseEvent(data, draft.source)
    const wire = chunk as ChunkWire
    if (wire.error !== undefined && wire.error !== null) {
      throw reportedError(draft.source, { reported: readReportedError(chunk) })
    }
    if (Array.isArray(wire.prompt_token_ids)) draft.promptIds = wire.prompt_token_ids
    if (isObject(wire.usage)) draft.usage = readUsage(wire.usage)
    draft.readVersion(chunk)
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
