import type {
  ContinuedTokens,
  DialectRequest,
  ModelRequest,
  ClientBodyParts,
  ReplySink,
  ServerDialect,
} from '../../apis/index.ts'
import type { MillraceError } from '../../errors/index.ts'
import {
  type ContentPart,
  isJsonList,
  isJsonObject,
  type Json,
  type JsonObject,
  type Message,
  type SystemMessage,
  type UserMessage,
} from '../../schema/index.ts'
import type { GatewayModel } from '../models.ts'
import {
  asksForTokens,
  chatView,
  type ClientView,
  continuedView,
  generateTokenFields,
  generateView,
} from './client-reply.ts'
import { type IncomingRequest, droppedFields, samplingIn, speaks } from './incoming-request.ts'
import { bodyInRecordedSpelling } from './recorded-spelling.ts'
import { upstreamBody } from './upstream-body.ts'

export interface UpstreamRequestParts {
  readonly request: DialectRequest
  readonly model: GatewayModel
  readonly messages: readonly Message[]
  readonly sessionId: string
  /** What the conversation has that the client's body only refers to: its beginning, or single items. */
  readonly filledIn: 'nothing' | 'beginning' | 'items'
  readonly isRecorded: boolean
  readonly isRespelled?: boolean
  /** For a model with exact tokens: the reply that the prompt goes on from. */
  readonly continues?: ContinuedTokens | undefined
}

/**
 * What is asked for beyond the client's words. `recorded`: what the record needs, in the form that the client wants.
 * `recorded-whole`: the same, but as a whole reply, because only those have it. `plain`: nothing, because the backend refuses
 * the rest.
 */
type Way = 'recorded' | 'recorded-whole' | 'plain'

export class UpstreamRequest {
  readonly dialect: ServerDialect
  readonly request: DialectRequest
  readonly model: GatewayModel
  readonly messages: readonly Message[]
  readonly dropped: readonly string[]
  readonly capturesTokens: boolean
  readonly body: Buffer | undefined
  readonly clientView: ClientView | undefined
  readonly #isGenerate: boolean
  readonly #incoming: IncomingRequest
  readonly #parts: UpstreamRequestParts
  readonly #way: Way

  constructor(incoming: IncomingRequest, parts: UpstreamRequestParts, way?: Way) {
    const { model, isRecorded } = parts
    this.#incoming = incoming
    this.#parts = parts
    this.dialect = incoming.dialect
    this.model = model
    this.messages = parts.messages
    this.#isGenerate = incoming.dialect.api === 'generate'
    // A limit of the whole context leaves no room for a prompt, so a backend would refuse it each time.
    const { maxTokens = 0 } = parts.request.sampling
    const request = maxTokens >= (model.contextLength ?? Infinity) ? this.#unlimited(parts.request) : parts.request
    this.request = request
    this.dropped = this.isSameApi ? [] : droppedFields(request, model)
    this.capturesTokens = isRecorded && (this.#isGenerate || model.capturesTokens)
    // Replies of exact tokens come whole, recorded or not.
    const needsTokens = this.capturesTokens || model.isExact
    const needsWhole = needsTokens && request.stream && !this.#isGenerate && !model.tokenRequest.inStreams
    this.#way = way ?? (needsWhole ? 'recorded-whole' : 'recorded')
    this.body = this.#isPassed ? this.#passedBody() : undefined
    this.clientView = this.#viewOf(request)
  }

  /** The request with less for the record, if the backend refused that, or did not name what it refused. */
  fallback(refusal: MillraceError): UpstreamRequest | undefined {
    if (refusal.code === 'context_length') {
      const request = this.#unlimited(this.request)
      return request === this.request
        ? undefined
        : new UpstreamRequest(this.#incoming, { ...this.#parts, request }, this.#way)
    }
    if (this.model.isExact && !this.#isGenerate) return undefined
    if (refusal.code !== 'model_rejected' || this.#way === 'plain' || !this.#isAdding) return undefined
    const refusalText = `${refusal.message} ${String(refusal.data['said'])} ${String(refusal.data['param'])}`
    const { body, stream } = this.request
    const isNamed = [...Object.keys(this.#tokenFields), 'stream_options'].some(
      (name) => !body[name] && refusalText.includes(name),
    )
    if (!isNamed && this.model.tokenRequest.isAccepted) return undefined
    const isWholeLeft = isNamed && this.capturesTokens && this.#way === 'recorded' && stream && !this.#isGenerate
    return new UpstreamRequest(this.#incoming, this.#parts, isWholeLeft ? 'recorded-whole' : 'plain')
  }

  /**
   * The translated request without its token limit, where that does not fit into the context: agents ask for as much as their
   * own models can write. The same request where the limit has to be said, or was said in the backend's own API.
   */
  #unlimited(request: DialectRequest): DialectRequest {
    const { maxTokens, ...sampling } = request.sampling
    if (maxTokens === undefined || this.isSameApi || this.model.api === 'messages') return request
    const name = this.dialect.api === 'responses' ? 'max_output_tokens' : 'max_tokens'
    return { ...request, sampling, dropped: [...(request.dropped ?? []), name] }
  }

  /** Called when the request was answered: remembers for the model what had to be asked differently. */
  learn(): void {
    const { tokenRequest } = this.model
    if (this.isAskedWhole) tokenRequest.inStreams = false
    if (this.#way !== 'plain' && this.#isAdding) tokenRequest.isAccepted = true
  }

  toModel(sink?: ReplySink): ModelRequest {
    const { body, messages, request } = this
    const { sessionId, continues } = this.#parts
    const { traceparent, bodyHeaders } = this.#incoming.call
    const { tools, toolChoice, responseFormat, parallelToolCalls, choices } = request
    const stream = this.#isStream
    const own = this.#clientBodyParts()
    // The scanner takes long token lists out of the answer, so it is not used for a client that asked for them itself.
    const isForClient = body !== undefined && asksForTokens(request)
    return {
      messages: this.isSameApi || this.model.api !== 'chat' ? messages : templateRoles(messages),
      tools,
      // A body that is passed on has the sampling in it.
      sampling: body === undefined ? samplingIn(this.model.api, request.sampling) : request.sampling,
      stream,
      sessionId,
      captureTokens: this.capturesTokens && this.#way !== 'plain' && !isForClient,
      ...(toolChoice !== undefined && { toolChoice }),
      ...(responseFormat !== undefined && { responseFormat }),
      ...(parallelToolCalls !== undefined && { parallelToolCalls }),
      ...(body !== undefined && { body, ...(bodyHeaders && { bodyHeaders }) }),
      ...(own && { own }),
      ...(choices !== undefined && { choices }),
      ...(this.#isGenerate && { bodyApi: 'generate' as const }),
      ...(stream && sink && { sink }),
      ...(traceparent !== undefined && { traceparent }),
      ...(continues && {
        continues: { ...continues, count: templateRoles(messages.slice(0, continues.count)).length },
      }),
    }
  }

  /** Whether the model speaks the client's API: its reply is then passed on as it comes. */
  get isSameApi(): boolean {
    return this.#isGenerate || speaks(this.model, this.dialect.api)
  }

  get isAskedWhole(): boolean {
    return this.#way === 'recorded-whole'
  }

  get #isStream(): boolean {
    return this.request.stream && !this.isAskedWhole
  }

  /** Whether anything is added for the record: Responses and Messages have no fields for it. */
  get #isForRecord(): boolean {
    const hasTokenFields = this.#isGenerate || this.dialect.api === 'chat'
    return this.#parts.isRecorded && hasTokenFields && this.#way !== 'plain'
  }

  get #isAdding(): boolean {
    return this.capturesTokens || (this.body !== undefined && this.#isForRecord && this.#addsUsage)
  }

  /** Whether usage is asked for: only in streams, because whole replies have it anyway. */
  get #addsUsage(): boolean {
    return this.#isStream && !this.request.includeUsage
  }

  get #tokenFields(): JsonObject {
    return this.#isGenerate ? generateTokenFields : this.model.tokenRequest.fields
  }

  /** Whether the client's body is passed on: not if it refers to our record, unless only its API can say the rest. */
  get #isPassed(): boolean {
    if (!this.isSameApi) return false
    const { filledIn } = this.#parts
    return filledIn === 'nothing' || (filledIn === 'items' && this.request.unsupported.length > 0)
  }

  #passedBody(): Buffer {
    const { body } = this.#incoming
    const { request, messages, model } = this
    const bytes = this.#parts.isRespelled
      ? bodyInRecordedSpelling(body, model.api, { sent: request.messages, recorded: messages })
      : body
    return upstreamBody({ bytes, members: request.body }, this.#additions())
  }

  #viewOf(request: DialectRequest): ClientView | undefined {
    if (!this.isSameApi) return undefined
    const { previousReplyId } = request
    if (this.body === undefined) return previousReplyId === undefined ? undefined : continuedView(previousReplyId)
    if (!this.#isForRecord) return undefined
    return this.#isGenerate ? generateView(request) : chatView(request)
  }

  /** What of the client's body goes along as it is, where the body itself does not. */
  #clientBodyParts(): ClientBodyParts | undefined {
    const { body, messages, request } = this
    if (body !== undefined || !this.isSameApi) return undefined
    const { model: _ours, input, previous_response_id: _before, ...fields } = request.body
    // Instructions are the first message, and stay a field of their own.
    const first = request.hasInstructions ? 1 : 0
    if (this.#parts.filledIn === 'items') return { messages: messages.slice(first), items: [], fields }
    const end = messages.length - (request.messages.length - first)
    return { messages: messages.slice(first, end), items: itemsOf(input), fields }
  }

  #additions(): JsonObject {
    const { model, request, dialect } = this
    const isForRecord = this.#isForRecord
    // `model` is taken out: SGLang's own API has no such field.
    if (this.#isGenerate) return { model: undefined, ...(isForRecord && generateTokenFields) }
    return {
      model: model.upstreamName,
      // The thread that a Messages backend would keep is never continued from here: see `refuseThread`.
      ...(dialect.api === 'messages' && { thread: undefined }),
      ...(isForRecord && this.capturesTokens && this.#tokenFields),
      ...(this.isAskedWhole && { stream: false, stream_options: undefined }),
      ...(isForRecord && this.#addsUsage && { stream_options: withUsage(request) }),
    }
  }
}

function withUsage({ body }: DialectRequest): Json {
  const given = body['stream_options']
  return { ...(isJsonObject(given) && given), include_usage: true }
}

function itemsOf(input: Json | undefined): readonly Json[] {
  if (typeof input === 'string') return [{ role: 'user', content: input }]
  return isJsonList(input) ? input : []
}

type Content = string | readonly ContentPart[]

/**
 * A conversation with the roles that chat templates accept: one system message at most, which comes first, and no two user
 * messages in a row. Adding messages to a conversation does not change the result for its beginning.
 */
export function templateRoles(messages: readonly Message[]): readonly Message[] {
  if (isAccepted(messages)) return messages
  const mapped: Message[] = []
  for (const message of messages) {
    const isHead = mapped.length === 0 || (mapped.length === 1 && mapped[0]?.role === 'system')
    const given = isInstruction(message)
      ? ({ role: isHead ? 'system' : 'user', content: message.content } as const)
      : message
    const last = mapped.at(-1)
    if (isSystem(last) && isSystem(given)) mapped[0] = { role: 'system', content: joined(last, given) }
    else if (isPlainUser(last) && isPlainUser(given))
      mapped.splice(-1, 1, { role: 'user', content: joined(last, given) })
    else mapped.push(given)
  }
  return mapped
}

function isAccepted(messages: readonly Message[]): boolean {
  return messages.every((message, index) => {
    if (message.role === 'developer') return false
    if (message.role === 'system') return index === 0
    return !isPlainUser(message) || !isPlainUser(messages[index - 1])
  })
}

function isSystem(message: Message | undefined): message is SystemMessage {
  return message?.role === 'system'
}

function isInstruction(message: Message): message is SystemMessage {
  return message.role === 'system' || message.role === 'developer'
}

/** A named user is another speaker. */
function isPlainUser(message: Message | undefined): message is UserMessage {
  return message?.role === 'user' && message.name === undefined
}

/** Both contents, as one text with an empty line between its parts unless there is more than text. */
function joined(
  { content: one }: { readonly content: Content },
  { content: other }: { readonly content: Content },
): Content {
  const parts = [...partsOf(one), ...partsOf(other)]
  const texts = parts.flatMap((part) => (part.type === 'text' ? [part.text] : []))
  return texts.length === parts.length ? texts.join('\n\n') : parts
}

function partsOf(content: Content): readonly ContentPart[] {
  return typeof content === 'string' ? [{ type: 'text', text: content }] : content
}
