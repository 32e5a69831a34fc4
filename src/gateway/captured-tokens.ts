import type { MessageNode, TokenRecord, Usage } from '../schema/index.ts'

/** What the backend really returned of a reply's tokens. */
export interface CapturedTokens {
  readonly promptIds: Int32Array | null
  readonly ids: Int32Array | null
  readonly logprobs: Float32Array | null
}

/**
 * Fewer ids than the reply had tokens, or log-probabilities for only some of them, are no record: a server whose parser of tool calls
 * holds tokens back may leave them out of a stream, and what is left looks whole.
 */
export function capturedTokens({ tokens }: Pick<MessageNode, 'tokens'>, { output }: Usage): CapturedTokens {
  if (!tokens) return { promptIds: null, ids: null, logprobs: null }
  const { promptIds = null, ids, logprobs } = tokens
  if (ids.length < output) return { promptIds, ids: null, logprobs: null }
  return { promptIds, ids, logprobs: logprobs.length === ids.length ? logprobs : null }
}

/** All that training takes. */
export type CompleteTokens = TokenRecord & { readonly promptIds: Int32Array }

/** undefined if anything of it is missing. */
export function completeTokens(node: Pick<MessageNode, 'tokens'>, usage: Usage): CompleteTokens | undefined {
  const { promptIds, ids, logprobs } = capturedTokens(node, usage)
  if (!node.tokens || promptIds === null || ids === null || logprobs === null) return undefined
  return { ...node.tokens, promptIds }
}
