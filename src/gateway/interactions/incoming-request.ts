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
import { depthProblem, utf8Problem } from '../../kit/index.ts'
import type { ClientApi } from '../../schema/index.ts'
import type { ContinuedBody, LastBody } from '../sessions/last-body.ts'
import { readRequest, refuseHeld, refuseUntranslatable } from './_read-request.ts'
import type { Caller } from '../caller.ts'
import type { ClientReply } from './client-reply.ts'
import { refuseChoices, type Choice } from './choices.ts'
import type { GatewayModel, GatewayModels, HostedTools } from '../gateway-models.ts'
import type { TreeNode } from '../sessions/tree-node.ts'

/** One request for a model, as a door hands it over. */
export interface InteractionCall {
  readonly caller: Caller
  /** The session that the path names. If missing, the session of the key; an admin's key has none, and nothing is recorded. */
  readonly sessionId?: string
  readonly api: ClientApi
  readonly body: Buffer
  /** How deep arrays and objects of the body may be within each other. */
  readonly maxJsonDepth?: number
  /** Asks only how many tokens the prompt has: nothing is sampled, and nothing recorded. */
  readonly countsOnly?: true
  /** Which of several choices this asks for: see `choicesOf`. */
  readonly choice?: Choice
  /** Headers about the body, which are sent along with it. */
  readonly bodyHeaders?: Readonly<Record<string, string>>
  /** How often the client says it has sent this request before. */
  readonly retryCount: number
  readonly traceparent?: string
  /** The door's id of the request, for listeners to events. */
  readonly requestId?: string
}

/** A request as it was read, and the model it is for. */
export interface ReadRequest {
  readonly request: DialectRequest
  readonly model: GatewayModel
  /** What is known of the body, if it continues the last one. */
  readonly continued: ContinuedBody<TreeNode> | undefined
}

/** What the session of a request knows that helps to read it. */
interface ReadingAids {
  readonly hostedTools: HostedTools
  readonly replies?: ReplyMemory | undefined
  readonly lastBody?: LastBody<TreeNode>
  /** Whether the request is recorded. */
  readonly isRecorded?: true
}

const dialects: Readonly<Record<ClientApi, ServerDialect>> = {
  chat: chatServer,
  responses: responsesServer,
  messages: messagesServer,
  generate: generateServer,
}

/** How many levels the messages of a body lie inside of: its object, and their list. */
const messagesDepth = 2

/** One request while it is read and answered, and what is known of it so far. */
export class IncomingRequest {
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

  /** The session of the request; undefined for an admin's request that names none. */
  get session(): string | undefined {
    const { caller, sessionId } = this.call
    return sessionId ?? (caller.kind === 'session' ? caller.sessionId : undefined)
  }

  /** The dialect for counting tokens. Throws for an API that cannot ask for that. */
  get counting(): CountingDialect {
    const { api, counting } = this.dialect
    if (counting) return counting
    const message = `tokens cannot be counted in ${api}; ask in messages or in responses`
    throw new MillraceError('usage', message, { data: { status: 400 } })
  }

  /** Reads the request. Throws what the client is to be told if it is not valid, or wants a model or feature that is missing. */
  read(models: GatewayModels, { replies, lastBody, isRecorded, hostedTools }: ReadingAids): ReadRequest {
    const { api, body, countsOnly } = this.call
    const problem = utf8Problem(body)
    if (problem !== undefined) throw new MillraceError('model_rejected', problem, { data: { status: 400 } })
    const continued = api === 'chat' ? lastBody?.continuedBy(body) : undefined
    this.#refuseDeep(continued)
    const before = { models, replies, messages: continued?.known }
    const dialect = countsOnly ? this.counting : this.dialect
    const request = readRequest(dialect, continued?.text ?? body.toString(), before)
    this.request = request
    if (isRecorded) refuseHeld(request)
    const model = api === 'generate' ? models.findSglang(request.model) : models.find(request.model)
    this.model = model
    if (isRecorded || !model.takesChoices) refuseChoices(request)
    if (api !== 'generate') refuseUntranslatable(request, model, { api, hostedTools })
    return { request, model, continued }
  }

  /** Of a body that continues the last one, only what is new is looked at. */
  #refuseDeep(continued: ContinuedBody<TreeNode> | undefined): void {
    const { body, maxJsonDepth } = this.call
    if (maxJsonDepth === undefined) return
    const problem = continued
      ? depthProblem(body.subarray(continued.knownBytes), maxJsonDepth, messagesDepth)
      : depthProblem(body, maxJsonDepth)
    if (problem !== undefined) throw new MillraceError('usage', problem)
  }
}
