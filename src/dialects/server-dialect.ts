import type { MillraceError } from '../errors/index.ts'
import type { BackendReply, ModelRequest, ReplyDelta } from '../inference/index.ts'
import type { AssistantMessage, ClientApi, ItemIds, ItemKind, JsonObject, Message } from '../schema/index.ts'

/**
 * The server's side of an API: how a client's request is read, and how a reply is written to it. The client's side, for
 * backends, is `Dialect` in inference. The gateway and the simulator both speak through these.
 */
export interface ServerDialect {
  readonly api: ClientApi
  /** Reads a parsed body. Throws `model_rejected` (with `data.status` 400 and `data.param`) for one that is not valid. */
  read(body: JsonObject, before?: SaidBefore): DialectRequest
  /** Where the API can be asked how many tokens a prompt has. */
  readonly counting?: CountingDialect
  /** A whole reply as a document. */
  whole(head: ReplyHead, reply: BackendReply): Record<string, unknown>
  /** A writer for one streamed reply. */
  stream(head: ReplyHead): ReplyStreamWriter
  /** What a stream has in place of arguments that are no JSON, where they are known before it begins and clients fail at them. */
  readonly streamedArguments?: (written: string) => string
  /** An error in the API's own shape, with the status and the headers (`retry-after`) that go with it. */
  error(error: MillraceError): DialectError
  /** The same in the middle of a stream. */
  streamError(error: MillraceError): WireEvent
}

/** How the length of a prompt is asked for: with the body of a request, but for what is only about the reply. */
export interface CountingDialect extends Pick<ServerDialect, 'api' | 'read'> {
  /** The answer as a document. */
  whole(tokens: number): Record<string, unknown>
}

/** One that has it. */
export interface CountingServerDialect extends ServerDialect {
  readonly counting: CountingDialect
}

/** What a session knows already. */
export interface SaidBefore {
  /**
   * Clients of Responses may refer to what was replied to them instead of sending it back: what is known is read as if it
   * had been sent, the rest is `untranslatable`.
   */
  readonly replies?: ReplyMemory | undefined
  /** Chat: messages that were read before, and that come before those of the body. */
  readonly messages?: readonly Message[] | undefined
}

/** What was replied earlier in a session. */
export interface ReplyMemory {
  reply(replyId: string): AssistantMessage | undefined
  /** Where an item comes from whose id somebody else made. */
  origin(itemId: string): ItemOrigin | undefined
  /** Whether a reply itself had the output of this call: its server has run the tool. */
  hasOutputOf(callId: string): boolean
  /** An item of a reply that only its API has words for. */
  other(itemId: string): JsonObject | undefined
}

/** Which reply of a session an item was part of, and which of its kind there, from 0. */
export interface ItemOrigin {
  readonly replyId: string
  readonly kind: ItemKind
  readonly number: number
}

/** A request in our own words, with what could not be put into them. */
export interface DialectRequest extends Pick<
  ModelRequest,
  'messages' | 'tools' | 'toolChoice' | 'responseFormat' | 'parallelToolCalls' | 'sampling'
> {
  readonly model: string
  readonly stream: boolean
  /** Whether a stream should end with its usage, where an API leaves that to the client. */
  readonly includeUsage: boolean
  /** What the client wants to see of the tokens; without it, a client sees none of what was captured. */
  readonly wantsTokenIds: boolean
  readonly wantsLogprobs: boolean
  /** The prompt itself, where a client sends it in tokens. */
  readonly promptIds?: Int32Array
  /** Responses: the first message is what the request calls its instructions, which hold for this reply only. */
  readonly hasInstructions?: true
  /** Responses: the reply that this one goes on from; its conversation comes before `messages`. */
  readonly previousReplyId?: string
  /** Responses: what the client calls replies among `messages`, or an item of theirs, by their places. */
  readonly replyNames?: ReadonlyMap<number, string>
  /** Names of what only this API can say (`audio`, `tools[2].type web_search`): refused if the model speaks another one. */
  readonly untranslatable: readonly string[]
  /** Those that stand for a part of the conversation which only the provider has (`conversation`): refused where it is recorded. */
  readonly held?: readonly string[]
  /** The body itself, for what a reply repeats of its request; without messages that were read before. */
  readonly body: JsonObject
}

/** What is known of a reply before it begins. */
export interface ReplyHead {
  /** In the API's own style: see `newReplyId`. */
  readonly id: string
  /** Responses: what the items of it are called, where a backend has said so. */
  readonly itemIds?: ItemIds | undefined
  /** What the client called the model. */
  readonly model: string
  /** Seconds since 1970. */
  readonly createdAt: number
  readonly request: DialectRequest
}

/** One server-sent event: its name, where the API has names, and its data, `[DONE]` or an object. */
export interface WireEvent {
  readonly name?: string
  readonly data: Record<string, unknown> | '[DONE]'
}

/** Writes one streamed reply. Events come in the order in which they are to be sent. */
export interface ReplyStreamWriter {
  start(): WireEvent[]
  delta(delta: ReplyDelta): WireEvent[]
  /** Instead of deltas: all that was said, in the API's own words (`OriginalReply`), and as a message. */
  repeat(output: readonly JsonObject[], message: AssistantMessage): WireEvent[]
  /** The reply is complete: whatever still has to be closed, the reason of the end, the usage. */
  end(reply: BackendReply): WireEvent[]
}

export interface DialectError {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  readonly body: Record<string, unknown>
}
