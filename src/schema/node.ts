import { z } from 'zod'
import type { Json, JsonObject } from '../kit/index.ts'
import type { ApiName, ClientApi, Message } from './message.ts'

/**
 * One message of a rollout and how it came to be. Nodes form a tree: `parent` is the node before it, and `hash` covers the
 * message and everything before it, so two nodes with one hash are the same message after the same history.
 */
export interface MessageNode {
  /** Counted up within one attempt of one rollout. */
  readonly seq: number
  readonly parent: number | null
  readonly hash: string
  readonly message: Message
  readonly sampled: boolean
  readonly at: number
  readonly call?: CallRecord
  readonly tool?: ToolRecord
  /** On a user message that answers calls written in text: one record for each call, in order. */
  readonly tools?: readonly TextToolRecord[]
  readonly tokens?: TokenRecord
  /** Instead of `call`, on a sample that is part of no conversation. What was sampled until then is kept. */
  readonly discarded?: DiscardRecord
}

export interface CallRecord {
  readonly model: string
  readonly backend: string
  readonly finishReason: FinishReason
  readonly usage: Usage
  /** US dollars; null where no price is known. */
  readonly cost: number | null
  readonly tries: number
  /** The last try on the wire; `waitMs` is the time before it: permits, rate limits, failed tries, back-off, parking. */
  readonly ms: number
  readonly waitMs: number
  readonly firstTokenMs?: number
  /** The id that a gateway's client knows the reply by (`chatcmpl-…`), and the API it was asked in. */
  readonly replyId?: string
  readonly api?: ClientApi
  /** The key of the request in its session: a client that sends it again gets this reply. */
  readonly requestKey?: string
  /** The conversation began with a system message that the request gave as its own instructions. */
  readonly hasInstructions?: true
  /** The ids that a backend of Responses gave the items: clients may send these instead of the items. */
  readonly itemIds?: ItemIds
  /** Names of what was left out of the client's request, because the model's API has no place for it. */
  readonly dropped?: readonly string[]
  /** How the reply was sampled. Missing in records of earlier versions. */
  readonly sampling?: SamplingRecord
  /** The names of the functions that the model could call. Of a rollout only with tokens; missing in records of earlier versions. */
  readonly tools?: readonly string[]
  /** Tokens were asked for, and some or all did not come. */
  readonly tokensMissing?: true
  /** A fork repeats this reply from the rollout that it was forked from. */
  readonly repeated?: true
  /** The request's stop sequence that ended the reply. */
  readonly stopSequence?: string
  /** Why the reply ended, in Messages' own word, where that says more than `finishReason`. */
  readonly stopReason?: string
  /** The reply in its API's own words, kept where the message cannot hold all that the client or server needs again. */
  readonly original?: OriginalReply
}

/** How a reply was sampled, as it was asked for. Where a field is missing, the server's own default held. */
export interface SamplingRecord {
  readonly temperature?: number
  readonly topP?: number
  readonly topK?: number
  readonly minP?: number
  readonly presencePenalty?: number
  readonly frequencyPenalty?: number
  readonly repetitionPenalty?: number
  readonly seed?: number
  readonly toolChoice?: 'auto' | 'none' | 'required' | { readonly name: string }
  /** Whether a tool was offered as strict. Some servers then hold calls to its schema with a grammar, others ignore it. */
  readonly strictTools?: true
  /** The fields of the request that masked tokens (`tool_choice`, `guided_regex`): log-probabilities may be those after the mask. */
  readonly constrainedBy?: readonly string[]
  readonly logprobs?: LogprobsKind
}

/** `raw`: of the model's own distribution. `processed`: after temperature, penalties and masks. Missing where nobody knows. */
export type LogprobsKind = 'raw' | 'processed'

/** How deep the output of an original may be nested: SQLite reads no JSON of a thousand levels, so it could not be read back. */
export const maxOriginalDepth = 256

export interface OriginalReply {
  readonly api: ApiName
  /** The items of a response, the blocks of an Anthropic message, or the one message of a chat completion. */
  readonly output: readonly JsonObject[]
}

/** The kinds of items that a reply in Responses consists of, as their ids begin: reasoning, text, calls. */
export type ItemKind = 'rs' | 'msg' | 'fc'

export type ItemIds = Readonly<Partial<Record<ItemKind, readonly string[]>>>

/** How a sample was lost. Usage that the server did not report is estimated. */
export interface DiscardRecord extends Omit<CallRecord, 'finishReason'> {
  readonly why: DiscardReason
  /** Only where the reply did end, and no client got it. */
  readonly finishReason?: FinishReason
}

/** `truncated`, `failed`: the backend did not end the reply. The others ended before it did. */
export type DiscardReason = 'client_gone' | 'session_ended' | 'shutdown' | 'truncated' | 'failed'

export interface ToolRecord {
  readonly name: string
  readonly status: ToolStatus
  readonly ms: number
  /** The model sees only the message. */
  readonly threw?: ToolThrow
  /** Repairs of the call before it was made; the message with the call stays as it was sampled. */
  readonly repairs?: readonly ToolRepair[]
  /** What the tool said about the call beyond its output: for a tool server, which connection, how many tries. */
  readonly detail?: Readonly<Record<string, Json>>
  /** What the call, and the children it asked, reported of their rollout: reported again where the answer is used again. */
  readonly reports?: ToolReports
}

export interface ToolReports {
  metrics?: Record<string, number>
  notes?: Record<string, Json>
}

export interface ToolThrow {
  /** The exception's class and place in the author's files, as `TypeError at environment.ts:41`: one fault has one kind. */
  readonly kind: string
  /** The first line of the exception's message, cut if it is long. */
  readonly message: string
}

export interface TextToolRecord extends ToolRecord {
  /** How many of the message's parts belong to this result. */
  readonly parts: number
}

export type ToolStatus = 'ok' | 'bad_arguments' | 'unknown_tool' | 'failed' | 'timeout'

export interface VersionSpan {
  readonly from: number
  readonly version: string
}

/** Sampled tokens exactly as the engine returned them. */
export interface TokenRecord {
  /** The prompts of one conversation may share memory, so the buffer must not be transferred. */
  readonly promptIds?: Int32Array
  readonly ids: Int32Array
  /** One for each id, NaN where the engine did not give it; empty if it gave none. */
  readonly logprobs: Float32Array
  /** The version of the weights that sampled the tokens; the first one, if it changed on the way. */
  readonly version?: string
  /** Where the weights changed in the middle of a reply: from which token on which version. The first span begins at 0. */
  readonly versionSpans?: readonly VersionSpan[]
  readonly routedExperts?: RoutedExperts
}

/** Which experts of a mixture each token went through. */
export interface RoutedExperts {
  /** Tokens × layers × experts per token; only the total count, where the server does not say. */
  readonly shape: readonly number[]
  /** The last index runs fastest. The narrowest type that holds the numbers. */
  readonly experts: Uint8Array<ArrayBuffer> | Int16Array<ArrayBuffer> | Int32Array<ArrayBuffer>
}

/** Why a backend ended a reply. A reply without a reason did not end: it was cut off. */
export type FinishReason = 'stop' | 'length' | 'tool_calls' | 'content_filter'

export interface ToolRepair {
  readonly rule: RepairRule
  /** The parameter that was repaired, where the rule does not say. */
  readonly at?: string
  readonly before: Json
  readonly after: Json
  /** False in `log` mode: the repair was only noted, not made. */
  readonly applied?: false
}

export type RepairRule =
  | 'json'
  | 'tool_alias'
  | 'server_route'
  | 'rename'
  | 'default'
  | 'value_fallback'
  | 'value_rewrite'
  | 'drop_nulls'
  | 'coerce'
  | 'retry_without'

const count = z.number()

/** The stored form of `Usage`. */
export const usageSchema = z.object({
  calls: count,
  input: count,
  cachedInput: count,
  output: count,
  reasoning: count,
  estimated: count.exactOptional(),
  captured: count.exactOptional(),
  laterTurns: count.exactOptional(),
  driftedTurns: count.exactOptional(),
  driftedTokens: count.exactOptional(),
})

/**
 * Tokens of one or more answered model calls; a call that failed or hung has none. `input` includes `cachedInput`; `output`
 * includes `reasoning`.
 */
export interface Usage {
  calls: number
  input: number
  cachedInput: number
  output: number
  reasoning: number
  /** How many of the calls have estimated tokens, as their server did not report usage. Left out if none. */
  estimated?: number
  /** How many of the calls returned the ids and log-probabilities of all their tokens. Left out if none was asked to. */
  captured?: number
  /** How many of the calls went on from an earlier reply, where the tokens of both are known. Left out if none. */
  laterTurns?: number
  /** Those of them whose prompt does not begin with the tokens of the earlier prompt and reply. Left out if none. */
  driftedTurns?: number
  /** The tokens of these earlier prompts and replies from the first difference on. Left out if none. */
  driftedTokens?: number
}

/** The counts that are left out where there is nothing to count. */
export const optionalUsage = [
  'estimated',
  'captured',
  'laterTurns',
  'driftedTurns',
  'driftedTokens',
] as const satisfies readonly (keyof Usage)[]

export function emptyUsage(): Usage {
  return { calls: 0, input: 0, cachedInput: 0, output: 0, reasoning: 0 }
}
