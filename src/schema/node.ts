import type { FinishReason } from './finish-reason.ts'
import type { Message } from './message.ts'
import type { Usage } from './usage.ts'

/**
 * One message of a rollout and how it came to be. Nodes form a tree: `parent` is the node before it, and `hash` covers the
 * message and everything before it, so two nodes with one hash are the same message after the same history.
 */
export interface MessageNode {
  /** Counts up within one attempt of one rollout. */
  readonly seq: number
  readonly parent: number | null
  readonly hash: string
  readonly message: Message
  readonly sampled: boolean
  readonly at: number
  readonly call?: CallRecord
  readonly tool?: ToolRecord
  readonly tokens?: TokenRecord
}

/** How a sampled message was obtained. */
export interface CallRecord {
  readonly model: string
  readonly backend: string
  readonly finishReason: FinishReason
  readonly usage: Usage
  /** US dollars; null where no price is known. */
  readonly cost: number | null
  readonly tries: number
  /** The last try on the wire; `waitMs` is everything before it: permits, rate limits, failed tries, back-off, parking. */
  readonly ms: number
  readonly waitMs: number
  readonly firstTokenMs?: number
}

/** How a tool message was obtained. */
export interface ToolRecord {
  readonly name: string
  readonly status: ToolStatus
  readonly ms: number
}

export type ToolStatus = 'ok' | 'bad_arguments' | 'unknown_tool' | 'failed' | 'timeout'

/** Sampled tokens exactly as the engine returned them. */
export interface TokenRecord {
  readonly promptIds?: Int32Array
  readonly ids: Int32Array
  readonly logprobs: Float32Array
  readonly version?: string
  readonly routedExperts?: RoutedExperts
}

/** Which experts of a mixture each token went through. */
export interface RoutedExperts {
  /** Tokens × layers × experts per token; one number, how many there are, where the server does not say. */
  readonly shape: readonly number[]
  /** The last index runs fastest. The narrowest of the types that holds them. */
  readonly experts: Uint8Array<ArrayBuffer> | Int16Array<ArrayBuffer> | Int32Array<ArrayBuffer>
}
