import type { DialectRequest, ServerDialect } from '../dialects/index.ts'
import type { ModelRequest, ReplySink } from '../inference/index.ts'
import type { Json, Message } from '../schema/index.ts'
import { isJsonObject } from './_read-request.ts'
import { unaskedBy, type Unasked } from './_unasked.ts'
import { upstreamBody } from './_upstream-body.ts'
import type { InteractionCall, ReadRequest, Visit } from './_visit.ts'
import type { GatewayModel } from './gateway-models.ts'

/** What is asked of a model for a client. */
export interface Question {
  readonly dialect: ServerDialect
  readonly request: DialectRequest
  readonly model: GatewayModel
  /** The whole conversation. */
  readonly messages: readonly Message[]
  readonly sessionId: string
  readonly traceparent: string | undefined
  /** Whether the backend is asked for tokens, which are then recorded. */
  readonly capturesTokens: boolean
  /** The client's body, if the model speaks the client's API: replies are then passed on as they come, too. */
  readonly body: string | undefined
  readonly bodyHeaders: InteractionCall['bodyHeaders']
  readonly unasked: Unasked | undefined
}

export interface QuestionParts extends ReadRequest, Pick<Question, 'messages' | 'sessionId'> {
  /** Whether its text is all: nothing was put in place of what it only refers to. */
  readonly isWhole: boolean
  /** Whether what comes of it is recorded. */
  readonly isRecorded: boolean
}

export function questionOf({ dialect, call: { traceparent, bodyHeaders } }: Visit, parts: QuestionParts): Question {
  const { request, model, text, messages, sessionId, isWhole, isRecorded } = parts
  const asked = { dialect, request, model, messages, sessionId, traceparent, bodyHeaders }
  const capturesTokens = isRecorded && model.capturesTokens
  // A conversation that we know is sent whole, to a backend that need not know it; unless only its own API can say it.
  const isPassed = model.api === dialect.api && (isWhole || request.untranslatable.length > 0)
  if (!isPassed) return { ...asked, capturesTokens, body: undefined, unasked: undefined }
  const isChat = isRecorded && dialect.api === 'chat'
  return {
    ...asked,
    capturesTokens,
    body: upstreamBody(text, request.body, {
      model: model.upstreamName,
      // Nobody here goes on with what a backend of Messages would hold: see `refuseThread`.
      ...(dialect.api === 'messages' && { thread: undefined }),
      ...(isChat && capturesTokens && { logprobs: true, return_token_ids: true }),
      ...(isChat && request.stream && !request.includeUsage && { stream_options: withUsage(request) }),
    }),
    unasked: isChat ? unaskedBy(request) : undefined,
  }
}

/** As the model layer takes it. The sink takes the reply if it is asked for as a stream. */
export function modelRequestOf(question: Question, sink: ReplySink): ModelRequest {
  const { request, messages, sessionId, traceparent, capturesTokens, body, bodyHeaders } = question
  const { tools, sampling, stream, toolChoice, responseFormat, parallelToolCalls } = request
  // Long lists of tokens are taken out of an answer that is read for them: not for a client that asked for them itself.
  const isForClient = body !== undefined && (request.wantsTokenIds || request.wantsLogprobs)
  return {
    messages,
    tools,
    sampling,
    stream,
    sessionId,
    captureTokens: capturesTokens && !isForClient,
    ...(toolChoice !== undefined && { toolChoice }),
    ...(responseFormat !== undefined && { responseFormat }),
    ...(parallelToolCalls !== undefined && { parallelToolCalls }),
    ...(body !== undefined && { body, ...(bodyHeaders && { bodyHeaders }) }),
    ...(stream && { sink }),
    ...(traceparent !== undefined && { traceparent }),
  }
}

function withUsage({ body }: DialectRequest): Json {
  const given = body['stream_options']
  return { ...(isJsonObject(given) && given), include_usage: true }
}
