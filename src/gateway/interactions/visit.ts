import {
  chatServer,
  generateServer,
  messagesServer,
  responsesServer,
  type CountingDialect,
  type DialectRequest,
  type ReplyMemory,
  type ServerDialect,
} from '../../dialects/index.ts'
import { MillraceError } from '../../errors/index.ts'
import type { ClientApi } from '../../schema/index.ts'
import type { ContinuedBody, LastBody } from '../sessions/last-body.ts'
import { readRequest, refuseHeld, refuseUntranslatable } from './_read-request.ts'
import type { Caller } from '../caller.ts'
import type { ClientReply } from './client-reply.ts'
import type { GatewayModel, GatewayModels } from '../gateway-models.ts'
import type { TreeNode } from '../sessions/session-tree.ts'

/** One request for a model, as a door hands it over. */
export interface InteractionCall {
  readonly caller: Caller
  /** The session that the path names. Without it: the key's own, or none, and then nothing is recorded. */
  readonly sessionId?: string
  readonly api: ClientApi
  readonly body: Buffer
  /** Only how many tokens the prompt has is asked for: nothing is sampled, and nothing recorded. */
  readonly countsOnly?: true
  /** What is said about the body in headers; they go where it goes. */
  readonly bodyHeaders?: Readonly<Record<string, string>>
  /** How often the client says that it has sent this before. */
  readonly retryCount: number
  readonly traceparent?: string
  /** What the door calls the request, for whoever listens to events. */
  readonly requestId?: string
}

/** What a request says, and to which model. */
export interface ReadRequest {
  readonly request: DialectRequest
  readonly model: GatewayModel
  /** What is known of its body, if it goes on from the last one. */
  readonly continued: ContinuedBody<TreeNode> | undefined
}

/** What the session of a request knows that helps to read it. */
interface ReadingAids {
  readonly replies?: ReplyMemory | undefined
  readonly lastBody?: LastBody<TreeNode>
  /** Whether what is said is recorded. */
  readonly isRecorded?: true
}

const dialects: Readonly<Record<ClientApi, ServerDialect>> = {
  chat: chatServer,
  responses: responsesServer,
  messages: messagesServer,
  generate: generateServer,
}

/** One request while it is read and answered, and what is known of it so far. */
export class Visit {
  readonly call: InteractionCall
  readonly client: ClientReply
  readonly dialect: ServerDialect
  readonly startedAt = performance.now()
  request: DialectRequest | undefined
  model: GatewayModel | undefined

  constructor(call: InteractionCall, client: ClientReply) {
    this.call = call
    this.client = client
    this.dialect = dialects[call.api]
  }

  /** The session it is for; none for an admin's request that names none. */
  get session(): string | undefined {
    const { caller, sessionId } = this.call
    return sessionId ?? (caller.kind === 'session' ? caller.sessionId : undefined)
  }

  /** Throws for an API that has no words for it. */
  get counting(): CountingDialect {
    const { api, counting } = this.dialect
    if (counting) return counting
    const message = `tokens cannot be counted in ${api}; ask in messages or in responses`
    throw new MillraceError('usage', message, { data: { status: 400 } })
  }

  /** Throws what the client is to be told if it makes no sense, or asks for a model or a feature that is not there. */
  read(models: GatewayModels, { replies, lastBody, isRecorded }: ReadingAids = {}): ReadRequest {
    const { api, body, countsOnly } = this.call
    const continued = api === 'chat' ? lastBody?.continuedBy(body) : undefined
    const before = { replies, messages: continued?.known }
    const dialect = countsOnly ? this.counting : this.dialect
    const request = readRequest(dialect, continued?.text ?? body.toString(), before)
    this.request = request
    if (isRecorded) refuseHeld(request)
    const model = api === 'generate' ? models.findSglang(request.model) : models.find(request.model)
    this.model = model
    if (api !== 'generate') refuseUntranslatable(request, model, api)
    return { request, model, continued }
  }
}
