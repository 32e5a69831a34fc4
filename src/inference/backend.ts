import type {
  AssistantMessage,
  FinishReason,
  JsonObject,
  Message,
  OriginalReply,
  Sampling,
  TokenRecord,
  ToolDefinition,
  Usage,
} from '../schema/index.ts'

export type ToolChoice = 'auto' | 'none' | 'required' | { readonly name: string }

/** What the text of a reply must be. */
export type ResponseFormat =
  | { readonly kind: 'json_object' }
  | {
      readonly kind: 'json_schema'
      readonly name: string
      readonly description?: string
      readonly schema: JsonObject
      readonly strict?: boolean
    }

/** What a model is asked for one turn. */
export interface ModelRequest {
  readonly messages: readonly Message[]
  /** All that was said, where the messages are something else in its place: no id that is made up may be there twice. */
  readonly conversation?: readonly Message[]
  readonly tools: readonly ToolDefinition[]
  readonly toolChoice?: ToolChoice
  readonly sampling: Sampling
  readonly responseFormat?: ResponseFormat
  /** Whether one reply may call several tools; the backend's own habit if not given. */
  readonly parallelToolCalls?: boolean
  /** Ask for the reply in pieces, or whole; as the model's config says if not given. */
  readonly stream?: boolean
  /** The body as a client wrote it, in the very API this model is asked in: sent instead of one made from the rest. */
  readonly body?: Buffer
  /** The body is in SGLang's own API instead, which its servers have beside the others. */
  readonly bodyApi?: 'generate'
  /** What its client said about the body in headers (the version of the API, betas), by their names in lower case. */
  readonly bodyHeaders?: Readonly<Record<string, string>>
  /** Takes the reply while it arrives. Once it took something, the call is not tried again. */
  readonly sink?: ReplySink
  /** Ask the backend for token ids and log-probabilities. */
  readonly captureTokens: boolean
  /** The rollout this belongs to, sent along so that routers can keep it on the server that holds its prefix. */
  readonly sessionId: string
  /** What the call is traced as, for whoever listens to model calls; see `RolloutStartEvent`. */
  readonly trace?: object
  /** The W3C trace context of this call: sent along as a header. */
  readonly traceparent?: string
}

/** One try at one backend. */
export interface BackendRequest extends ModelRequest {
  /** 0 for the first try; repeated tries say so to the backend. */
  readonly retry: number
  readonly signal: AbortSignal
}

/** A piece of a streamed reply, whichever API it came in. `tool-call` begins one, `arguments` goes on with it. */
export type ReplyDelta =
  | { readonly kind: 'content' | 'reasoning' | 'refusal'; readonly text: string }
  | { readonly kind: 'tool-call'; readonly index: number; readonly id: string; readonly name: string }
  | { readonly kind: 'arguments'; readonly index: number; readonly text: string }

/** One event of a backend's stream. */
export interface ReplyEvent {
  /** As it came, without long token lists if they were taken out of it. */
  readonly data: string
  /** The same, parsed; undefined for `[DONE]`. */
  readonly document: object | undefined
  readonly deltas: readonly ReplyDelta[]
  /** It, or one before it, said how the reply ended: after this one nothing is lost if the stream is cut. */
  readonly isEnd: boolean
}

/**
 * Takes a streamed reply while it arrives, in order. A backend may answer whole all the same, as one that does not know
 * `stream` does: then no event comes, and the reply is all there is. An event that reports an error is not passed on; the
 * call ends with that error.
 */
export interface ReplySink {
  /**
   * False if it can take no more for now: the backend is then not read from until `resume` was called, or for as long as
   * a request may take at most. What was read already, one read of a socket at most, still comes; that the backend closed
   * the connection meanwhile is noticed when it is read on.
   */
  onEvent(event: ReplyEvent, resume: () => void): boolean
  /** The reply broke off, or was given up, after the first event. Called once, before the call ends. */
  onPartial?(partial: PartialReply): void
}

/** What had come of a reply until it broke off. */
export type PartialReply = Pick<BackendReply, 'message' | 'tokens'>

/** A reply whose end the backend declared. */
export interface BackendReply {
  readonly message: AssistantMessage
  readonly finishReason: FinishReason
  /** Which of the request's stop sequences ended it, where the server says so. */
  readonly stopSequence?: string
  /** In Messages' own word, where that says more than `finishReason`. */
  readonly stopReason?: string
  readonly usage: Usage
  readonly tokens?: TokenRecord
  readonly firstTokenMs?: number
  /** In its API's own words, if the message has no place for all of it. */
  readonly original?: OriginalReply
  /** The answer itself, for a client that asked in the same API; only if it was asked for with `body`, and not a stream. */
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
  /** What serves it, as spans say it (`gen_ai.provider.name`). If not given: who made the API that its model is asked in. */
  readonly provider?: string
  /** When the first bytes of a reply last came, by `performance.now()`. Without it only whole replies tell that it lives. */
  readonly heardAt?: number
  send(request: BackendRequest): Promise<BackendReply>
  /** How many tokens the prompt of a request has; one try, as `send`, and nothing is sampled. Missing where it cannot say. */
  readonly countTokens?: ((request: BackendRequest) => Promise<number>) | undefined
  /** Nothing more comes of this session: what was kept for it may go. */
  endSession?(sessionId: string): void
}
