import type { TokenPrompt } from './tokens/token-prompt.ts'
import type {
  AssistantMessage,
  FinishReason,
  Json,
  JsonObject,
  LogprobsKind,
  Message,
  OriginalReply,
  Sampling,
  TokenRecord,
  ToolDefinition,
  Usage,
} from '../schema/index.ts'

export type ToolChoice = 'auto' | 'none' | 'required' | { readonly name: string }

export type ResponseFormat =
  | { readonly kind: 'json_object' }
  | {
      readonly kind: 'json_schema'
      readonly name: string
      readonly description?: string
      readonly schema: JsonObject
      readonly strict?: boolean
    }

/** The part of a client's body that is sent as it is, where its conversation is filled in. */
export interface ClientBodyParts {
  /** The messages that are filled in, those that the client did not write itself. */
  readonly messages: readonly Message[]
  /** The items that follow those messages in `input`. */
  readonly items: readonly Json[]
  /** All other fields. They are sent in place of those made from tools, sampling and formats. */
  readonly fields: JsonObject
}

export interface ModelRequest {
  readonly messages: readonly Message[]
  /** The whole conversation, if `messages` are sent in place of it. Ids that are made up must be new in it. */
  readonly conversation?: readonly Message[]
  readonly tools: readonly ToolDefinition[]
  readonly toolChoice?: ToolChoice
  readonly sampling: Sampling
  readonly responseFormat?: ResponseFormat
  /** Whether one reply may call several tools; the backend's own habit if not given. */
  readonly parallelToolCalls?: boolean
  /** Ask for the reply in pieces, or whole; as the model's config says if not given. */
  readonly stream?: boolean
  /** The body as a client wrote it in the API of this model. It is sent in place of a body made from the other fields. */
  readonly body?: Buffer
  /** How many choices `body` asks for, if that is more than one. Only the first is read; the others are the client's. */
  readonly choices?: number
  /** What a client wrote in the API of this model. It is sent in place of what the other fields say: only Responses has that. */
  readonly own?: ClientBodyParts
  /** Set if `body` is in SGLang's own API, which its servers have beside the others. */
  readonly bodyApi?: 'generate'
  /** The client's headers that concern the body (the version of the API, betas), by lower-case name. */
  readonly bodyHeaders?: Readonly<Record<string, string>>
  /**
   * The prompt as token ids, sent in place of the messages. The reply then has the engine's own text as its content, or none: it is
   * read from its ids by the code that wrote the prompt.
   */
  readonly prompt?: TokenPrompt
  /** The beginning of the conversation as tokens. A model that owns its tokens goes on from there; other models ignore it. */
  readonly continues?: ContinuedTokens | undefined
  /** Takes the reply while it arrives. Once the sink has taken an event, the call is not tried again. */
  readonly sink?: ReplySink
  readonly captureTokens: boolean
  /** The rollout of the request, sent along so that routers can keep it on the server that holds its prefix. */
  readonly sessionId: string
  /** What listeners to model calls trace the call as; see `RolloutStartEvent`. */
  readonly trace?: object
  /** The W3C trace context of this call: sent along as a header. */
  readonly traceparent?: string
}

/** The tokens of the first messages of a conversation. The last of these messages was sampled. */
export interface ContinuedTokens {
  /** The number of messages, the sampled one included. */
  readonly count: number
  readonly promptIds: Int32Array
  readonly ids: Int32Array
}

export interface BackendRequest extends ModelRequest {
  /** 0 for the first try; repeated tries say so to the backend. */
  readonly retry: number
  /** Whether a reply that the engine aborted is wanted as it is. Only for a `prompt` of ids: else it is an error. */
  readonly keepsAborted?: boolean
  readonly signal: AbortSignal
}

/** A piece of a streamed reply, in any API. `tool-call` begins a call, `arguments` continues it. */
export type ReplyDelta =
  | { readonly kind: 'content' | 'reasoning' | 'refusal'; readonly text: string }
  | { readonly kind: 'tool-call'; readonly index: number; readonly id: string; readonly name: string }
  | { readonly kind: 'arguments'; readonly index: number; readonly text: string }

export interface ReplyEvent {
  /** The event's data as it came, without long token lists if they were taken out. */
  readonly data: string
  /** The data, parsed; undefined for `[DONE]`. */
  readonly document: object | undefined
  readonly deltas: readonly ReplyDelta[]
  /** Whether this event or an earlier one said how the reply ended: nothing is lost if the stream is cut after it. */
  readonly isEnd: boolean
}

/**
 * Takes a streamed reply while it arrives, in order. A backend that does not know `stream` answers whole: then no event
 * comes, only the reply. An event that reports an error is not passed on; the call ends with that error.
 */
export interface ReplySink {
  /**
   * Called with the events that came together, in one read of the socket. False if the sink can take no more for now: the backend
   * is then not read from until `resume` is called, or for as long as a request may take at most. A connection that the backend
   * closes meanwhile is noticed only when it is read again.
   */
  onEvents(events: readonly ReplyEvent[], resume: () => void): boolean
  /** The reply broke off, or was abandoned, after the first event. Called once, before the call ends. */
  onPartial?(partial: PartialReply): void
}

export type PartialReply = Pick<BackendReply, 'message' | 'tokens'>

/** The version of the weights of a reply that does not say it. */
export interface LaterVersion {
  /** The version before the request was sent: no token is of an older one. Undefined if it was not known then. */
  readonly before: string | undefined
  /** The version that the backend named last. */
  readonly last: string | undefined
  /** Resolves when the backend has been asked after the reply. Undefined if the version may have changed meanwhile. */
  find(): Promise<string | undefined>
  /** Asks the backend now, for all replies that wait. Resolves when they know. */
  look(): Promise<void>
}

export interface BackendReply {
  readonly message: AssistantMessage
  readonly finishReason: FinishReason
  /** The engine has aborted the reply, and these are the tokens so far: only where `keepsAborted` allows it. */
  readonly isAborted?: true
  /** Which of the request's stop sequences ended it, where the server says so. */
  readonly stopSequence?: string
  /** The stop reason in the words of the Messages API, if that says more than `finishReason`. */
  readonly stopReason?: string
  readonly usage: Usage
  readonly tokens?: TokenRecord
  /** For tokens without the version of their weights. */
  readonly laterVersion?: LaterVersion
  readonly firstTokenMs?: number
  /** The reply in its API's own words, if the message has no place for all of it. */
  readonly original?: OriginalReply
  /** The answer itself, for a client that asked in the same API: only for a request with a `body`, and not for a stream. */
  readonly raw?: RawReply
}

/** A whole answer as the backend wrote it, without long token lists if they were taken out of it. */
export interface RawReply {
  readonly text: string
  readonly document: object
}

/**
 * One inference server. `send` makes exactly one try: it resolves with a complete reply or rejects with a coded error
 * (`model_*`, `context_length`) or with the signal's reason; any other error counts as the
 * server's. Retries, limits and accounting are the model's business. An error's `data.retryAfterMs` and `data.status`
 * carry what the server said.
 */
export interface Backend extends AsyncDisposable {
  readonly name: string
  /** What serves the model, as spans say it (`gen_ai.provider.name`). Default: the maker of the API of the model. */
  readonly provider?: string
  readonly logprobs?: LogprobsKind | undefined
  /** When the first bytes of a reply last came, by `performance.now()`. If missing, only whole replies are signs of life. */
  readonly lastByteAt?: number
  send(request: BackendRequest): Promise<BackendReply>
  /** How many tokens a request's prompt has. One try, like `send`; nothing is sampled. Missing if the backend cannot count. */
  readonly countTokens?: ((request: BackendRequest) => Promise<number>) | undefined
  /** The session is over: what the backend kept for it may go. */
  endSession?(sessionId: string): void
  /** Only of backends that take prompts as token ids. */
  readonly tokenAccess?: TokenAccess | undefined
}

/** What a model that owns its tokens asks its backend when it is opened. */
export interface TokenAccess {
  /** Rejects with `config_invalid` if the server takes no prompts of token ids, and says what to do. */
  facts(): Promise<TokenServerFacts>
  /**
   * The ids of a text as the server's own tokenizer makes them, without a token at its beginning; or of a conversation, in its own
   * chat template. Undefined if it cannot be asked.
   */
  tokenize(given: string | TokenizedConversation, signal: AbortSignal): Promise<Int32Array | undefined>
}

export interface TokenizedConversation {
  readonly messages: readonly Message[]
  readonly tools: readonly ToolDefinition[]
}

export interface TokenServerFacts {
  /** Shown to people: the path that takes ids, such as `/inference/v1/generate`. */
  readonly path: string
  /** The longest prompt and reply together, in tokens. */
  readonly contextLength: number | undefined
  /** The folder that the server names for its tokenizer. It may be on another machine. */
  readonly tokenizerFolder: string | undefined
}
