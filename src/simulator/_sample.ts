import type { BackendReply } from '../inference/index.ts'
import type { RoutedExperts, TokenRecord, VersionSpan } from '../schema/index.ts'
import type { Delivery } from './_simulator-answer.ts'
import { joinTokens } from './_compose.ts'
import type { Token } from './_token-stream.ts'

/** What was sampled of a reply, all of it or its beginning, with the versions that its tokens left with. */
export interface Sample {
  /** An aborted reply has the finish reason `length`, as none of our four reasons fits. */
  readonly reply: BackendReply
  readonly tokens: readonly Token[]
  readonly versions: readonly VersionSpan[]
  /** Whether the engine ended the reply before it was complete. */
  readonly isAborted: boolean
}

export function completeSample(delivery: Delivery, tokens: readonly Token[], versions: readonly VersionSpan[]): Sample {
  const { reply } = delivery
  const stamped = reply.tokens ? { ...reply, tokens: withVersions(reply.tokens, versions) } : reply
  return { reply: stamped, tokens, versions, isAborted: false }
}

/** The first tokens of `delivery`, as the reply that they make. */
export function partialSample(delivery: Delivery, tokens: readonly Token[], versions: readonly VersionSpan[]): Sample {
  const { reply } = delivery
  const count = tokens.length
  const reasoning = tokens.reduce((sum, token) => sum + (token.part === 'reasoning' ? 1 : 0), 0)
  const partial: BackendReply = {
    message: joinTokens(tokens, reply.message.tool_calls ?? []),
    finishReason: 'length',
    usage: { ...reply.usage, output: count, reasoning },
    ...(reply.firstTokenMs === undefined ? {} : { firstTokenMs: reply.firstTokenMs }),
    ...(reply.tokens ? { tokens: withVersions(firstTokens(reply.tokens, count), versions) } : {}),
  }
  return { reply: partial, tokens, versions, isAborted: true }
}

function firstTokens(record: TokenRecord, count: number): TokenRecord {
  const { ids, logprobs, routedExperts } = record
  return {
    ...record,
    ids: ids.slice(0, count),
    logprobs: logprobs.slice(0, count),
    ...(routedExperts ? { routedExperts: firstExperts(routedExperts, count) } : {}),
  }
}

function firstExperts({ shape, experts }: RoutedExperts, count: number): RoutedExperts {
  const [tokens = 0, ...rest] = shape
  const perToken = tokens === 0 ? 0 : experts.length / tokens
  return { shape: [count, ...rest], experts: experts.slice(0, count * perToken) }
}

function withVersions(record: TokenRecord, versions: readonly VersionSpan[]): TokenRecord {
  const { version: _then, ...unstamped } = record
  const [first] = versions
  if (!first) return unstamped
  return { ...unstamped, version: first.version, ...(versions.length > 1 ? { versionSpans: versions } : {}) }
}
