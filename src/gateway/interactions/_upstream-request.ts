import type { DialectRequest, ServerDialect } from '../../dialects/index.ts'
import type { MillraceError } from '../../errors/index.ts'
import type { ModelRequest, OwnWords, ReplySink } from '../../inference/index.ts'
import { isJsonList, isJsonObject, type Json, type JsonObject, type Message } from '../../schema/index.ts'
import { GenerateView, generateTokenFields } from './_generate-capture.ts'
import { samplingIn } from './_sampling-in.ts'
import { asksForTokens, ChatView, type ClientView } from './_client-view.ts'
import { leftOutOf } from './_read-request.ts'
import { templateRoles } from './_template-roles.ts'
import { upstreamBody } from './_upstream-body.ts'
import { bodyInRecordedSpelling } from './_recorded-arguments.ts'
import { ContinuedView } from './_continued-view.ts'
import type { IncomingRequest } from './incoming-request.ts'
import type { GatewayModel } from '../gateway-models.ts'

export interface UpstreamRequestParts {
  readonly request: DialectRequest
  readonly model: GatewayModel
  /** The whole conversation. */
  readonly messages: readonly Message[]
  readonly sessionId: string
  /** What the conversation has that the client's body only refers to: its beginning, or single items. */
  readonly filledIn: 'nothing' | 'beginning' | 'items'
  /** Whether the request and its reply are recorded. */
  readonly isRecorded: boolean
  /** Whether the client wrote tool calls in another spelling than `messages` has. */
  readonly isRespelled?: boolean
}

/**
 * What is asked for beyond the client's words. `recorded`: what the record needs, in the form that the client wants.
 * `recorded-whole`: the same, but as a whole reply, because only those have it. `plain`: nothing, because the backend refuses
 * the rest.
 */
type Way = 'recorded' | 'recorded-whole' | 'plain'

/** What a model is asked for a client: the request as it goes to the backend. */
export class UpstreamRequest {
  readonly dialect: ServerDialect
  readonly request: DialectRequest
  readonly model: GatewayModel
  /** The whole conversation. */
  readonly messages: readonly Message[]
  /** Names of what the client said and the backend is not told. */
  readonly dropped: readonly string[]
  /** Whether the reply should be recorded with its tokens. */
  readonly capturesTokens: boolean
  /** The client's body, if it is passed on. */
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
    this.dropped = this.isSameApi ? [] : leftOutOf(request, model)
    this.capturesTokens = isRecorded && (this.#isGenerate || model.capturesTokens)
    const needsWhole = this.capturesTokens && request.stream && !this.#isGenerate && !model.tokenRequest.inStreams
    this.#way = way ?? (needsWhole ? 'recorded-whole' : 'recorded')
    this.body = this.#isPassed ? this.#passedBody() : undefined
    this.clientView = this.#viewOf(request)
  }

  /**
   * The request with less for the record, if the backend refused something that the client never said. A backend may not
   * name what it refuses: then the additions are suspected, until it has accepted all of them once.
   */
  plainer(refusal: MillraceError): UpstreamRequest | undefined {
    if (refusal.code === 'context_length') {
      const request = this.#unlimited(this.request)
      return request === this.request
        ? undefined
        : new UpstreamRequest(this.#incoming, { ...this.#parts, request }, this.#way)
    }
    if (refusal.code !== 'model_rejected' || this.#way === 'plain' || !this.#isAdding) return undefined
    const said = `${refusal.message} ${String(refusal.data['said'])} ${String(refusal.data['param'])}`
    const { body, stream } = this.request
    const isNamed = [...Object.keys(this.#tokenFields), 'stream_options'].some(
      (name) => !body[name] && said.includes(name),
    )
    if (!isNamed && this.model.tokenRequest.isAccepted) return undefined
    const isWholeLeft = isNamed && this.capturesTokens && this.#way === 'recorded' && stream && !this.#isGenerate
    return new UpstreamRequest(this.#incoming, this.#parts, isWholeLeft ? 'recorded-whole' : 'plain')
  }

  /**
   * The translated request without the most tokens that its reply may have, because these and the prompt do not fit into the
   * context: then what is left of the context is less. Agents ask for as much as their own models can write (Claude Code for
   * 128,000 tokens), and engines refuse that. The same request where the limit has to be said, or was said in the backend's own
   * API.
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

  /** The request to the model layer. `sink` takes the reply if it is asked for as a stream. */
  toModel(sink?: ReplySink): ModelRequest {
    const { body, messages, request } = this
    const { sessionId } = this.#parts
    const { traceparent, bodyHeaders } = this.#incoming.call
    const { tools, toolChoice, responseFormat, parallelToolCalls, choices } = request
    const stream = this.#isStream
    const own = this.#ownWords()
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
    }
  }

  /** Whether the model speaks the client's API: its reply is then passed on as it comes. */
  get isSameApi(): boolean {
    return this.#isGenerate || this.model.api === this.dialect.api
  }

  /** Whether the client wants a stream, but the backend is asked for a whole reply. */
  get isAskedWhole(): boolean {
    return this.#way === 'recorded-whole'
  }

  get #isStream(): boolean {
    return this.request.stream && !this.isAskedWhole
  }

  /** Whether anything is added for the record: Responses and Messages have no fields for it. */
  get #isForRecord(): boolean {
    const hasWords = this.#isGenerate || this.dialect.api === 'chat'
    return this.#parts.isRecorded && hasWords && this.#way !== 'plain'
  }

  /** Whether the backend is told more than the client said. */
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

  /**
   * Whether the client's body is passed on. One that refers to our record is not, because the backend may not know that,
   * unless it refers to single items and only the client's API can say the others.
   */
  get #isPassed(): boolean {
    if (!this.isSameApi) return false
    const { filledIn } = this.#parts
    return filledIn === 'nothing' || (filledIn === 'items' && this.request.untranslatable.length > 0)
  }

  #passedBody(): Buffer {
    const { body } = this.#incoming.call
    const { request, messages, model } = this
    const bytes = this.#parts.isRespelled
      ? bodyInRecordedSpelling(body, model.api, { sent: request.messages, recorded: messages })
      : body
    return upstreamBody({ bytes, members: request.body }, this.#additions())
  }

  #viewOf(request: DialectRequest): ClientView | undefined {
    if (!this.isSameApi) return undefined
    const { previousReplyId } = request
    if (this.body === undefined) return previousReplyId === undefined ? undefined : new ContinuedView(previousReplyId)
    if (!this.#isForRecord) return undefined
    return this.#isGenerate ? new GenerateView(request) : new ChatView(request)
  }

  /** What of the client's body goes along as it is, where the body itself does not. */
  #ownWords(): OwnWords | undefined {
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

/** The input of a Responses request as items. */
function itemsOf(input: Json | undefined): readonly Json[] {
  if (typeof input === 'string') return [{ role: 'user', content: input }]
  return isJsonList(input) ? input : []
}
