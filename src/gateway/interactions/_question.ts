import type { DialectRequest, ServerDialect } from '../../dialects/index.ts'
import type { MillraceError } from '../../errors/index.ts'
import type { ModelRequest, ReplySink } from '../../inference/index.ts'
import { isJsonObject, type Json, type JsonObject, type Message } from '../../schema/index.ts'
import { GenerateUnasked, generateTokenFields } from './_generate-capture.ts'
import { samplingIn } from './_sampling-in.ts'
import { asksForTokens, unaskedBy, type Unasked } from './_unasked.ts'
import { upstreamBody } from './_upstream-body.ts'
import type { Visit } from './visit.ts'
import type { GatewayModel } from '../gateway-models.ts'

export interface QuestionParts {
  readonly request: DialectRequest
  readonly model: GatewayModel
  /** The whole conversation. */
  readonly messages: readonly Message[]
  readonly sessionId: string
  /** Whether its text is all: nothing was put in place of what it only refers to. */
  readonly isWhole: boolean
  /** Whether what comes of it is recorded. */
  readonly isRecorded: boolean
}

/**
 * How much is asked for beyond the client's words: what is recorded, in the form that the client wants; the same of a
 * whole reply, because only those have it; nothing, because the backend refuses to be asked.
 */
type Way = 'recorded' | 'recorded-whole' | 'plain'

/** What is asked of a model for a client. */
export class Question {
  readonly dialect: ServerDialect
  readonly request: DialectRequest
  readonly model: GatewayModel
  /** Whether the reply should be recorded with its tokens. */
  readonly capturesTokens: boolean
  /** The client's body, if the model speaks the client's API: replies are then passed on as they come, too. */
  readonly body: Buffer | undefined
  readonly unasked: Unasked | undefined
  readonly #isGenerate: boolean
  readonly #visit: Visit
  readonly #parts: QuestionParts
  readonly #way: Way

  constructor(visit: Visit, parts: QuestionParts, way?: Way) {
    const { request, model, isRecorded } = parts
    this.#visit = visit
    this.#parts = parts
    this.dialect = visit.dialect
    this.request = request
    this.model = model
    this.#isGenerate = visit.dialect.api === 'generate'
    this.capturesTokens = isRecorded && (this.#isGenerate || model.capturesTokens)
    const needsWhole = this.capturesTokens && request.stream && !this.#isGenerate && !model.tokenRequest.inStreams
    this.#way = way ?? (needsWhole ? 'recorded-whole' : 'recorded')
    const clientBody = { bytes: visit.call.body, members: request.body }
    this.body = this.#isPassed ? upstreamBody(clientBody, this.#additions()) : undefined
    if (this.body !== undefined && this.#isForRecord) {
      this.unasked = this.#isGenerate ? new GenerateUnasked(request) : unaskedBy(request)
    }
  }

  /**
   * Asked again with less for the record, if the backend refused something that the client never said. It may not name
   * what it refuses: then that is anything, until it has once answered to all of it.
   */
  plainer(refusal: MillraceError): Question | undefined {
    if (refusal.code !== 'model_rejected' || this.#way === 'plain' || !this.#isAdding) return undefined
    const said = `${refusal.message} ${String(refusal.data['said'])} ${String(refusal.data['param'])}`
    const { body, stream } = this.request
    const isNamed = [...Object.keys(this.#tokenFields), 'stream_options'].some(
      (name) => !body[name] && said.includes(name),
    )
    if (!isNamed && this.model.tokenRequest.isAccepted) return undefined
    const isWholeLeft = isNamed && this.capturesTokens && this.#way === 'recorded' && stream && !this.#isGenerate
    return new Question(this.#visit, this.#parts, isWholeLeft ? 'recorded-whole' : 'plain')
  }

  /** It was answered: what had to be asked differently for that is asked so at once from now on. */
  learn(): void {
    const { tokenRequest } = this.model
    if (this.isAskedWhole) tokenRequest.inStreams = false
    if (this.#way !== 'plain' && this.#isAdding) tokenRequest.isAccepted = true
  }

  /** As the model layer takes it. The sink takes the reply if it is asked for as a stream. */
  toModel(sink?: ReplySink): ModelRequest {
    const { body, request } = this
    const { messages, sessionId } = this.#parts
    const { traceparent, bodyHeaders } = this.#visit.call
    const { tools, toolChoice, responseFormat, parallelToolCalls } = request
    const stream = this.#isStream
    // Long lists of tokens are taken out of an answer that is read for them: not for a client that asked for them itself.
    const isForClient = body !== undefined && asksForTokens(request)
    return {
      messages,
      tools,
      // A body that is passed on says it itself.
      sampling: body === undefined ? samplingIn(this.model.api, request.sampling) : request.sampling,
      stream,
      sessionId,
      captureTokens: this.capturesTokens && this.#way !== 'plain' && !isForClient,
      ...(toolChoice !== undefined && { toolChoice }),
      ...(responseFormat !== undefined && { responseFormat }),
      ...(parallelToolCalls !== undefined && { parallelToolCalls }),
      ...(body !== undefined && { body, ...(bodyHeaders && { bodyHeaders }) }),
      ...(this.#isGenerate && { bodyApi: 'generate' as const }),
      ...(stream && sink && { sink }),
      ...(traceparent !== undefined && { traceparent }),
    }
  }

  /** The client wants a stream, and can see nothing of it before all of it is there. */
  get isAskedWhole(): boolean {
    return this.#way === 'recorded-whole'
  }

  get #isStream(): boolean {
    return this.request.stream && !this.isAskedWhole
  }

  /** Whether anything is added for the record: two of the APIs have no words for it. */
  get #isForRecord(): boolean {
    const hasWords = this.#isGenerate || this.dialect.api === 'chat'
    return this.#parts.isRecorded && hasWords && this.#way !== 'plain'
  }

  /** Whether the backend is told more than the client said. */
  get #isAdding(): boolean {
    return this.capturesTokens || (this.body !== undefined && this.#isForRecord && this.#addsUsage)
  }

  /** To a stream: whole replies say it unasked. */
  get #addsUsage(): boolean {
    return this.#isStream && !this.request.includeUsage
  }

  get #tokenFields(): JsonObject {
    return this.#isGenerate ? generateTokenFields : this.model.tokenRequest.fields
  }

  /** A conversation that we know is sent whole, to a backend that need not know it; unless only its own API can say it. */
  get #isPassed(): boolean {
    const { dialect, model, request } = this
    return this.#isGenerate || (model.api === dialect.api && (this.#parts.isWhole || request.untranslatable.length > 0))
  }

  #additions(): JsonObject {
    const { model, request, dialect } = this
    const isForRecord = this.#isForRecord
    // The model is a word of ours, for which that API has no place.
    if (this.#isGenerate) return { model: undefined, ...(isForRecord && generateTokenFields) }
    return {
      model: model.upstreamName,
      // Nobody here goes on with what a backend of Messages would hold: see `refuseThread`.
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
