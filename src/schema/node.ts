import type { ApiName, ClientApi } from './api-name.ts'
import type { FinishReason } from './finish-reason.ts'
import type { Json, JsonObject } from './json.ts'
import type { Message } from './message.ts'
import type { ToolRepair } from './tool-repair.ts'
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
  /** Of a user message that answers calls written in text: one for each call, in order. */
  readonly tools?: readonly TextToolRecord[]
  readonly tokens?: TokenRecord
  /** Instead of `call`: sampled, but part of no conversation. What came of it until then is kept. */
  readonly discarded?: DiscardRecord
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
  /** What the reply was called to the client of a gateway (`chatcmpl-…`), and the API it was asked in. */
  readonly replyId?: string
  readonly api?: ClientApi
  /** What the request was to its session: a client that sends it again gets this reply. */
  readonly requestKey?: string
  /** The conversation began with a system message that the request gave as its own instructions. */
  readonly hasInstructions?: true
  /** What a backend of Responses called the items of the reply: clients may send these names instead of the items. */
  readonly itemIds?: ItemIds
  /** Its tokens were asked for, and did not come, or not all of them. */
  readonly tokensMissing?: true
  /** Which of the request's stop sequences ended it, where the server said so. */
  readonly stopSequence?: string
  /** Why it ended, in Messages' own word, where that says more than `finishReason`. */
  readonly stopReason?: string
  /**
   * The reply in its API's own words: of a gateway, where a client that asks again could not be given all of it from the
   * message; of a rollout, where it holds reasoning that its server takes back only so.
   */
  readonly original?: OriginalReply
}

/** How deep the output of one may be nested: SQLite reads no JSON of a thousand levels, so nobody could read it any more. */
export const maxOriginalDepth = 256

/** The items of a response, the blocks of a message of Anthropic's, or the one message of a chat completion. */
export interface OriginalReply {
  readonly api: ApiName
  readonly output: readonly JsonObject[]
}

/** The kinds of items that a reply in Responses consists of, as their ids begin: reasoning, text, calls. */
export type ItemKind = 'rs' | 'msg' | 'fc'

export type ItemIds = Readonly<Partial<Record<ItemKind, readonly string[]>>>

/** How a sample was lost. Usage that nobody told is estimated. */
export interface DiscardRecord extends Omit<CallRecord, 'finishReason'> {
  readonly why: DiscardReason
  /** Only where the reply did end, and nobody got it. */
  readonly finishReason?: FinishReason
}

/**
 * `client_gone`: whoever asked went away. `session_ended`: its session ended, or expired, first. `shutdown`: the gateway
 * stopped first. `truncated`, `failed`: the backend did not end the reply.
 */
export type DiscardReason = 'client_gone' | 'session_ended' | 'shutdown' | 'truncated' | 'failed'

/** How a tool message was obtained. */
export interface ToolRecord {
  readonly name: string
  readonly status: ToolStatus
  readonly ms: number
  /** What the tool's own code threw, if it did: the model sees no more than the message. */
  readonly threw?: ToolThrow
  /** What was done to the call before it was made; the message it came from stays as it was sampled. */
  readonly repairs?: readonly ToolRepair[]
  /** What the tool said about the call beyond its output: for a tool server, which connection, how many tries. */
  readonly detail?: Readonly<Record<string, Json>>
  /** What it reported of its rollout, the children it asked included: reported again where the answer is used again. */
  readonly reports?: ToolReports
}

/** What is said of a rollout with `metric` and `note`. */
export interface ToolReports {
  metrics?: Record<string, number>
  notes?: Record<string, Json>
}

/** An exception of a tool. */
export interface ToolThrow {
  /** Its class and its place in the author's files, as `TypeError at environment.ts:41`: one fault has one kind. */
  readonly kind: string
  /** Its first line, cut where it is long. */
  readonly message: string
}

/** How one of the results in a user message was obtained. */
export interface TextToolRecord extends ToolRecord {
  /** How many of the message's parts are its. */
  readonly parts: number
}

export type ToolStatus = 'ok' | 'bad_arguments' | 'unknown_tool' | 'failed' | 'timeout'

/** Sampled tokens exactly as the engine returned them. */
export interface TokenRecord {
  /** The prompts of one conversation may lie in the same memory, so it is not to be given away. */
  readonly promptIds?: Int32Array
  readonly ids: Int32Array
  /** One for each id, NaN where the engine did not say it; none if it said none. */
  readonly logprobs: Float32Array
  /** Of the weights that sampled them; of the first ones, if it changed on the way. */
  readonly version?: string
  /** Where the weights changed in the middle of a reply: from which token on which version. The first begins at 0. */
  readonly versionSpans?: readonly VersionSpan[]
  readonly routedExperts?: RoutedExperts
}

export interface VersionSpan {
  readonly from: number
  readonly version: string
}

/** Which experts of a mixture each token went through. */
export interface RoutedExperts {
  /** Tokens × layers × experts per token; one number, how many there are, where the server does not say. */
  readonly shape: readonly number[]
  /** The last index runs fastest. The narrowest of the types that holds them. */
  readonly experts: Uint8Array<ArrayBuffer> | Int16Array<ArrayBuffer> | Int32Array<ArrayBuffer>
}
