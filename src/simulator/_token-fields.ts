import type { DialectRequest } from '../dialects/index.ts'
import type { RoutedExperts, TokenRecord } from '../schema/index.ts'
import type { Token } from './_token-stream.ts'
import type { ImitationName } from './simulator-options.ts'

/** The tokens of one piece of a reply, or of all of it. */
export interface TokenSlice {
  readonly record: TokenRecord
  readonly tokens: readonly Token[]
  /** Where they stand in the reply. */
  readonly from: number
}

type Fields = Record<string, unknown>

/** What a backend adds to OpenAI's Chat Completions to say what it sampled. */
export interface TokenFields {
  /** Whether the client asked for any of it. */
  isAsked(request: DialectRequest): boolean
  /** Of the prompt, to the document or the choice that comes first. */
  addPrompt(request: DialectRequest, document: Fields, choice: Fields, ids: Int32Array): void
  /** Of sampled tokens, to the choice they belong to. */
  addSampled(request: DialectRequest, choice: Fields, slice: TokenSlice, version: string | undefined): void
  /** Of all sampled tokens, to the choice that comes last. */
  addExperts(request: DialectRequest, choice: Fields, experts: RoutedExperts): void
  /** Whether it says which weights made the tokens. */
  readonly hasVersions: boolean
}

const vllm: TokenFields = {
  isAsked: ({ wantsTokenIds, wantsLogprobs }) => wantsTokenIds || wantsLogprobs,
  addPrompt({ wantsTokenIds }, document, _choice, ids) {
    if (wantsTokenIds) document['prompt_token_ids'] = Array.from(ids)
  },
  addSampled({ wantsTokenIds, wantsLogprobs }, choice, slice) {
    if (wantsLogprobs) choice['logprobs'] = logprobsOf(slice)
    if (wantsTokenIds) choice['token_ids'] = slice.tokens.map((token) => token.id)
  },
  // As gateways before vLLM send them.
  addExperts({ wantsTokenIds }, choice, { shape, experts }) {
    if (!wantsTokenIds) return
    choice['routed_experts'] = { data: Buffer.from(experts).toString('base64'), shape, dtype: 'uint8' }
  },
  hasVersions: true,
}

const sglang: TokenFields = {
  isAsked: (request) => request.wantsLogprobs || wantsMetaInfo(request) || wantsPromptIds(request),
  addPrompt(request, _document, choice, ids) {
    if (wantsPromptIds(request)) choice['prompt_token_ids'] = Array.from(ids)
  },
  addSampled(request, choice, slice, version) {
    if (request.wantsLogprobs) choice['logprobs'] = logprobsOf(slice)
    if (!wantsMetaInfo(request)) return
    choice['meta_info'] = {
      output_token_logprobs: tokenLogprobs(slice),
      ...(version === undefined ? {} : { weight_version: version }),
    }
  },
  // Bare 32-bit numbers, without a shape.
  addExperts(request, choice, { experts }) {
    if (wantsMetaInfo(request)) choice['sgl_ext'] = { routed_experts: base64Int32(experts) }
  },
  hasVersions: true,
}

/** Log-probabilities, but no ids and no versions. */
const openai: TokenFields = {
  isAsked: ({ wantsLogprobs }) => wantsLogprobs,
  addPrompt() {},
  addSampled({ wantsLogprobs }, choice, slice) {
    if (wantsLogprobs) choice['logprobs'] = logprobsOf(slice)
  },
  addExperts() {},
  hasVersions: false,
}

export const tokenFields: Readonly<Record<ImitationName, TokenFields>> = { vllm, sglang, openai, anthropic: openai }

/** Which backends return ids; the others have no tokens to record. */
export function returnsTokenIds(name: ImitationName): boolean {
  return name === 'vllm' || name === 'sglang'
}

/** As SGLang writes them: log-probability, id, text. */
export function tokenLogprobs({ record, tokens, from }: TokenSlice): [number, number, string][] {
  return tokens.map((token, index) => [record.logprobs[from + index] ?? 0, token.id, token.piece])
}

export function base64Int32(experts: RoutedExperts['experts']): string {
  return Buffer.from(Int32Array.from(experts).buffer).toString('base64')
}

/** SGLang's own flag; or vLLM's, which clients send that do not know what they talk to. */
function wantsMetaInfo({ body, wantsTokenIds }: DialectRequest): boolean {
  return wantsTokenIds || body['return_meta_info'] === true
}

function wantsPromptIds({ body, wantsTokenIds }: DialectRequest): boolean {
  return wantsTokenIds || body['return_prompt_token_ids'] === true
}

function logprobsOf({ record, tokens, from }: TokenSlice): Fields {
  const content = tokens.map((token, index) => ({
    token: token.piece,
    logprob: record.logprobs[from + index] ?? 0,
    bytes: [...Buffer.from(token.piece)],
    top_logprobs: [],
  }))
  return { content }
}
