import type {
  AssistantMessage,
  FinishReason,
  Message,
  Sampling,
  TokenRecord,
  ToolDefinition,
  Usage,
} from '../schema/index.ts'

export type ToolChoice = 'auto' | 'none' | 'required' | { readonly name: string }

/** What a model is asked for one turn. */
export interface ModelRequest {
  readonly messages: readonly Message[]
  readonly tools: readonly ToolDefinition[]
  readonly toolChoice?: ToolChoice
  readonly sampling: Sampling
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

/** A reply whose end the backend declared. */
export interface BackendReply {
  readonly message: AssistantMessage
  readonly finishReason: FinishReason
  readonly usage: Usage
  readonly tokens?: TokenRecord
  readonly firstTokenMs?: number
}

/**
 * One inference server. `send` makes exactly one try: it resolves with a complete reply or rejects with a coded error
 * (`model_*`, `context_length`) or with the signal's reason. Retries, limits and accounting are the model's business.
 * An error's `data.retryAfterMs` and `data.status` carry what the server said.
 */
export interface Backend extends AsyncDisposable {
  readonly name: string
  send(request: BackendRequest): Promise<BackendReply>
}
