import { randomBytes } from 'node:crypto'
import { MillraceError } from '../errors/index.ts'
import type { BackendReply, ModelRequest, ReplyDelta } from './backend.ts'
import { type Draft, sseEvent } from '../kit/index.ts'
import {
  type ApiName,
  type AssistantMessage,
  type ClientApi,
  type ItemIds,
  type ItemKind,
  type JsonObject,
  type Message,
} from '../schema/index.ts'
import type { ToolNames } from './responses/tool-names.ts'

/** The server's side of an API, for the gateway and the simulator. The client's side, for backends, is `Dialect`. */
export interface ServerDialect {
  readonly api: ClientApi
  /** Fields that a body lacks, and is sent on with. */
  readonly missingFields?: (body: JsonObject) => JsonObject
  /** Reads a parsed body. Throws `model_rejected` (with `data.status` 400 and `data.param`) if it is not valid. */
  read(body: JsonObject, before?: ReadContext): DialectRequest
  /** How tokens of a prompt are counted, if the API can do that. */
  readonly counting?: CountingDialect
  whole(head: ReplyHead, reply: BackendReply): Record<string, unknown>
  stream(head: ReplyHead): ReplyStreamWriter
  /** Replaces arguments that are no JSON, which clients fail at, in a stream of a reply that is already whole. */
  readonly streamedArguments?: (written: string) => string
  /** An error in the API's own shape, with the status and the headers (`retry-after`) that go with it. */
  error(error: MillraceError): DialectError
  streamError(error: MillraceError): ServerSentEvent
}

/** How a client asks for the length of a prompt: with the body of a request, without fields about the reply. */
export interface CountingDialect extends Pick<ServerDialect, 'api' | 'read'> {
  whole(tokens: number): Record<string, unknown>
}

export interface CountingServerDialect extends ServerDialect {
  readonly counting: CountingDialect
}

export interface ReadContext {
  /**
   * The API of the model's backend. If it is another one than the client's, the request is read for translation: what has a
   * counterpart there is turned into it, and hints are left out. Without it, the request is read for its own API. `ids`: the
   * backend takes token ids, in no API of a client's.
   */
  readonly backendApi?: ApiName | 'ids' | undefined
  /** Responses: earlier replies, which clients may refer to instead of sending them. Unknown ones are `unsupported`. */
  readonly replies?: ReplyMemory | undefined
  /** Chat: messages that were read before, which come before those of the body. */
  readonly messages?: readonly Message[] | undefined
}

export interface ReplyMemory {
  reply(replyId: string): AssistantMessage | undefined
  origin(itemId: string): ItemOrigin | undefined
  /** Whether a reply already had the output of this call, because its server ran the tool. */
  hasOutputOf(callId: string): boolean
  /** An item of a reply that only its API knows. */
  other(itemId: string): JsonObject | undefined
}

/** The reply that an item was part of, and the item's number among those of its kind, from 0. */
export interface ItemOrigin {
  readonly replyId: string
  readonly kind: ItemKind
  readonly number: number
}

/** Reads a request; one that builds on an earlier reply is refused, for servers that keep no replies. */
export function readWhole(
  dialect: Pick<ServerDialect, 'read'>,
  body: JsonObject,
  before?: ReadContext,
): DialectRequest {
  const asked = dialect.read(body, before)
  if (asked.previousReplyId === undefined) return asked
  throw new MillraceError('model_rejected', 'replies are not kept; send the whole conversation as input', {
    data: { status: 400, param: 'previous_response_id' },
  })
}

/** A request in our own shape, with the names of what does not fit into it. */
export interface DialectRequest extends Pick<
  ModelRequest,
  'messages' | 'tools' | 'toolChoice' | 'responseFormat' | 'parallelToolCalls' | 'sampling'
> {
  readonly model: string
  readonly stream: boolean
  /** Whether a stream should end with its usage, if the API leaves that to the client. */
  readonly includeUsage: boolean
  /** Which facts about tokens the client asked for; it is shown no others, even if they were captured. */
  readonly wantsTokenIds: boolean
  readonly wantsLogprobs: boolean
  /** Chat: how many choices the client wants, if that is more than one. */
  readonly choices?: number
  readonly promptIds?: Int32Array
  /** Responses: whether the first message is the request's instructions, which hold for this reply only. */
  readonly hasInstructions?: true
  /** Responses: the reply that this request continues; its conversation comes before `messages`. */
  readonly previousReplyId?: string
  /** Responses: the client's names of replies among `messages`, or of one of their items, by place. */
  readonly replyNames?: ReadonlyMap<number, string>
  /** Names of what only this API knows (`audio`, `tools[2].type web_search`): refused if the model speaks another API. */
  readonly unsupported: readonly string[]
  /** Names of what is left out, because the model is asked the same without it. Only if the request is translated. */
  readonly dropped?: readonly string[]
  /** Names of tools that only the client's provider runs. Only if the request is translated. */
  readonly hosted?: readonly string[]
  /** Responses: the client's names of tools whose functions are called differently. Only if the request is translated. */
  readonly toolNames?: ToolNames
  /** Names of parts of the conversation that only the provider has: refused if the session is recorded. */
  readonly providerContent?: readonly string[]
  /** The body, whose fields a reply may repeat; without messages that were read before. */
  readonly body: JsonObject
}

export interface ReplyHead {
  /** The reply's id, in the API's own style: see `newReplyId`. */
  readonly id: string
  /** Responses: the ids of its items, if a backend has given them. */
  readonly itemIds?: ItemIds | undefined
  readonly model: string
  /** In seconds since 1970. */
  readonly createdAt: number
  readonly request: DialectRequest
}

/** One server-sent event: its name, if the API has names, and its data. */
export interface ServerSentEvent {
  readonly name?: string
  readonly data: Record<string, unknown> | '[DONE]'
}

/** Writes one streamed reply. Events are returned in the order in which they must be sent. */
export interface ReplyStreamWriter {
  start(): ServerSentEvent[]
  delta(delta: ReplyDelta): ServerSentEvent[]
  /** Called instead of `delta`: writes the whole reply from its API's own words (`OriginalReply`) and its message. */
  repeat(output: readonly JsonObject[], message: AssistantMessage): ServerSentEvent[]
  /** Ends the reply: closes what is open, and writes the finish reason and the usage. */
  end(reply: BackendReply): ServerSentEvent[]
}

export interface DialectError {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  readonly body: Record<string, unknown>
}

/** A request while it is read. Fields that the client left out are not set. */
export type RequestDraft = Draft<DialectRequest>

export function eventText({ name, data }: ServerSentEvent): string {
  return sseEvent(data === '[DONE]' ? data : JSON.stringify(data), name)
}

const prefixes: Readonly<Record<ClientApi, string>> = {
  chat: 'chatcmpl-',
  responses: 'resp_',
  messages: 'msg_',
  generate: '',
}

/** A new id for a reply, in the style of the API's own server. */
export function newReplyId(api: ClientApi): string {
  return prefixes[api] + randomBytes(15).toString('hex')
}

/**
 * The deltas of a whole message, for a client that wants a stream when the reply is there already. `asWritten` gives the
 * arguments of a call as the client's API has them, if that is not the model's own text.
 */
export function replyDeltas(message: AssistantMessage, asWritten = (written: string) => written): ReplyDelta[] {
  const deltas: ReplyDelta[] = []
  if (message.reasoning_content) deltas.push({ kind: 'reasoning', text: message.reasoning_content })
  if (message.content) deltas.push({ kind: 'content', text: message.content })
  if (message.refusal) deltas.push({ kind: 'refusal', text: message.refusal })
  for (const [index, call] of (message.tool_calls ?? []).entries()) {
    deltas.push({ kind: 'tool-call', index, id: call.id, name: call.function.name })
    const text = asWritten(call.function.arguments)
    if (text !== '') deltas.push({ kind: 'arguments', index, text })
  }
  return deltas
}
