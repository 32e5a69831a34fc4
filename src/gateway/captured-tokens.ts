import type { MessageNode, TokenRecord, Usage } from '../schema/index.ts'

/** The tokens of a reply that the backend really returned; null for what is missing. */
export interface CapturedTokens {
  readonly promptIds: Int32Array | null
  readonly ids: Int32Array | null
  readonly logprobs: Float32Array | null
}

/**
 * The captured tokens. Fewer ids than the reply had tokens, or log-probabilities for only some of them, count as missing: a
 * server whose parser of tool calls holds tokens back may leave them out of a stream, and the rest looks whole.
 */
export function capturedTokens({ tokens }: Pick<MessageNode, 'tokens'>, { output }: Usage): CapturedTokens {
  if (!tokens) return { promptIds: null, ids: null, logprobs: null }
  const { promptIds = null, ids, logprobs } = tokens
  if (ids.length < output) return { promptIds, ids: null, logprobs: null }
  return { promptIds, ids, logprobs: logprobs.length === ids.length ? logprobs : null }
}

/** All tokens that training needs. */
export type CompleteTokens = TokenRecord & { readonly promptIds: Int32Array }

/** The tokens of a reply for training; undefined if any part of them is missing. */
export function completeTokens(node: Pick<MessageNode, 'tokens'>, usage: Usage): CompleteTokens | undefined {
  const { promptIds, ids, logprobs } = capturedTokens(node, usage)
  if (!node.tokens || promptIds === null || ids === null || logprobs === null) return undefined
  return { ...node.tokens, promptIds }
}
