import type { AssistantMessage, ToolCall, Usage } from '../schema/index.ts'
import type { BackendReply } from './backend.ts'
import { malformedReply, truncatedReply } from './broken-reply.ts'
import { finishReasonOf } from './_finish-reason.ts'
import { TokenDraft } from './_token-draft.ts'
import { isObject } from './_wire.ts'
import type { ResponseHeaders } from './retry-after.ts'
import type { Source } from './source.ts'

/** More calls than this in one reply are a broken reply. */
const maxToolCalls = 1024

interface DraftCall {
  id: string
  name: string
  arguments: string
}

interface VersionWire {
  weight_version?: unknown
  metadata?: unknown
}

/** A reply while it is being read, whole or in pieces, in either dialect. */
export class ReplyDraft {
  readonly source: Source
  content: string | null = null
  reasoning = ''
  refusal = ''
  /** What the server said; empty until it did. */
  finish = ''
  usage: Usage = { calls: 1, input: 0, cachedInput: 0, output: 0, reasoning: 0 }
  #tokens: TokenDraft | undefined
  #version: string | undefined
  readonly #calls: DraftCall[] = []

  constructor(source: Source, headers: ResponseHeaders) {
    this.source = source
    const version = headers['x-weight-version']
    if (typeof version === 'string') this.#version = version
  }

  /** Made when the first are seen: most replies have none. */
  get tokens(): TokenDraft {
    this.#tokens ??= new TokenDraft(this.source)
    return this.#tokens
  }

  get hasToolCalls(): boolean {
    return this.#calls.length > 0
  }

  get toolCallCount(): number {
    return this.#calls.length
  }

  /** The tool call at this place, made if it is new. */
  toolCall(index: number): DraftCall {
    if (!Number.isInteger(index) || index < 0 || index >= maxToolCalls) {
      throw malformedReply(this.source, `it has a tool call number ${index}`)
    }
    while (this.#calls.length <= index) this.#calls.push({ id: '', name: '', arguments: '' })
    return this.#calls[index] as DraftCall
  }

  /** vLLM forks put the version of the weights at the top level, SGLang under `metadata`. */
  readVersion(body: object): void {
    const wire = body as VersionWire
    const inner: VersionWire | undefined = isObject(wire.metadata) ? wire.metadata : undefined
    const version = wire.weight_version ?? inner?.weight_version
    if (typeof version === 'string' || typeof version === 'number') this.#version = String(version)
  }

  /** The reply, if the server said how it ended. */
  reply(): BackendReply {
    if (this.finish === '') throw truncatedReply(this.source, 'it has no finish reason')
    const finishReason = finishReasonOf(this.finish, this.hasToolCalls)
    if (finishReason === 'cut') throw truncatedReply(this.source, `the server ended it with "${this.finish}"`)
    const reply: BackendReply = { message: this.#message(), finishReason, usage: this.usage }
    const tokens = this.#tokens?.record(this.#version)
    return tokens ? { ...reply, tokens } : reply
  }

  #message(): AssistantMessage {
    // Filled in one order whatever arrived first, so that equal messages have equal JSON.
    const message: { -readonly [Key in keyof AssistantMessage]: AssistantMessage[Key] } = {
      role: 'assistant',
      content: this.content,
    }
    if (this.reasoning !== '') message.reasoning_content = this.reasoning
    if (this.refusal !== '') message.refusal = this.refusal
    if (this.#calls.length > 0) message.tool_calls = this.#calls.map((call, index) => this.#toolCall(call, index))
    return message
  }

  #toolCall(call: DraftCall, index: number): ToolCall {
    if (call.name === '') throw malformedReply(this.source, `tool call ${index} has no name`)
    // Arguments stay the text the model wrote; whether they are valid is for whoever runs the tool.
    return {
      id: call.id || `call_${index}`,
      type: 'function',
      function: { name: call.name, arguments: call.arguments },
    }
  }
}
