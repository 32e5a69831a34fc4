import type { DialectRequest } from '../dialects/index.ts'

/** What was asked of a backend for the record, and not by the client: it is taken out of what the client sees. */
export interface Unasked {
  readonly tokenIds: boolean
  readonly logprobs: boolean
  /** Of a stream. */
  readonly usage: boolean
}

interface ChatWire {
  readonly choices?: unknown
  readonly usage?: unknown
  readonly prompt_token_ids?: unknown
}

/** Of a choice: vLLM's, then those of SGLang. */
const tokenFields = ['token_ids', 'routed_experts', 'prompt_token_ids', 'meta_info', 'sgl_ext'] as const

export function unaskedBy({ wantsTokenIds, wantsLogprobs, stream, includeUsage }: DialectRequest): Unasked | undefined {
  const usage = stream && !includeUsage
  if (wantsTokenIds && wantsLogprobs && !usage) return undefined
  return { tokenIds: !wantsTokenIds, logprobs: !wantsLogprobs, usage }
}

/** A Chat Completions reply, or a chunk of one, as its client asked for it. Undefined for a chunk that is nothing else. */
export function withoutUnasked(document: object, unasked: Unasked): object | undefined {
  const wire: ChatWire = document
  const { choices } = wire
  if (unasked.usage && wire.usage && Array.isArray(choices) && choices.length === 0) return undefined
  const { usage, prompt_token_ids: promptIds, ...seen } = wire
  return {
    ...seen,
    ...(Array.isArray(choices) && { choices: choices.map((choice: unknown) => choiceWithout(choice, unasked)) }),
    ...(!unasked.usage && usage !== undefined && { usage }),
    ...(!unasked.tokenIds && promptIds !== undefined && { prompt_token_ids: promptIds }),
  }
}

function choiceWithout(choice: unknown, unasked: Unasked): unknown {
  if (typeof choice !== 'object' || choice === null) return choice
  const seen: Record<string, unknown> = { ...choice }
  if (unasked.tokenIds) for (const field of tokenFields) delete seen[field]
  // The API has the field in every choice.
  if (unasked.logprobs && 'logprobs' in seen) seen['logprobs'] = null
  return seen
}
