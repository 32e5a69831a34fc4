import type { DialectRequest } from '../../apis/index.ts'
import type { RoutedExperts, TokenRecord, VersionSpan } from '../../schema/index.ts'
import type { Token } from '../engine/tokens.ts'
import type { ImitationName } from '../engine/options.ts'

export interface TokenSlice {
  readonly record: TokenRecord
  readonly tokens: readonly Token[]
  readonly from: number
}

type Fields = Record<string, unknown>

export interface TokenFieldWriter {
  isAsked(request: DialectRequest): boolean
  addPrompt(request: DialectRequest, document: Fields, choice: Fields, ids: Int32Array): void
  addSampled(request: DialectRequest, choice: Fields, slice: TokenSlice, version: string | undefined): void
  addExperts(request: DialectRequest, choice: Fields, experts: RoutedExperts, document: Fields): void
  /** Why a request is refused for the token fields it asks for, if it is. */
  refusal?(request: DialectRequest): { readonly param: string; readonly message: string } | undefined
  readonly hasVersions: boolean
}

const vllm: TokenFieldWriter = {
  isAsked: ({ wantsTokenIds, wantsLogprobs }) => wantsTokenIds || wantsLogprobs,
  addPrompt({ wantsTokenIds }, document, _choice, ids) {
    if (wantsTokenIds) document['prompt_token_ids'] = Array.from(ids)
  },
  addSampled({ wantsTokenIds, wantsLogprobs }, choice, slice) {
    if (wantsLogprobs) choice['logprobs'] = logprobContent(slice)
    if (wantsTokenIds) choice['token_ids'] = slice.tokens.map((token) => token.id)
  },
  // In the form that gateways before vLLM send.
  addExperts({ wantsTokenIds }, choice, { shape, experts }) {
    if (!wantsTokenIds) return
    choice['routed_experts'] = { data: Buffer.from(experts).toString('base64'), shape, dtype: 'uint8' }
  },
  // Its replies do not say it; `GET /weight_info` does.
  hasVersions: false,
}

/** Flags for whole replies only; a stream of Chat Completions that sets one is refused. */
const sglangFlags = ['return_prompt_token_ids', 'return_token_ids', 'return_meta_info'] as const

const sglang: TokenFieldWriter = {
  isAsked: ({ body, wantsLogprobs }) => wantsLogprobs || sglangFlags.some((flag) => body[flag] === true),
  addPrompt({ body, wantsTokenIds }, _document, choice, ids) {
    if (wantsTokenIds || body['return_prompt_token_ids'] === true) choice['prompt_token_ids'] = Array.from(ids)
  },
  addSampled({ body, wantsTokenIds, wantsLogprobs }, choice, slice, version) {
    if (wantsLogprobs) choice['logprobs'] = logprobContent(slice)
    if (wantsTokenIds) choice['token_ids'] = slice.tokens.map((token) => token.id)
    if (body['return_meta_info'] !== true) return
    choice['meta_info'] = {
      completion_tokens: slice.tokens.length,
      // SGLang's own log-probabilities come only together with those of the API.
      ...(wantsLogprobs && { output_token_logprobs: tokenLogprobs(slice) }),
      ...(version !== undefined && { weight_version: version }),
    }
  },
  // Bare 32-bit numbers, without a shape; beside the choices if there is no `meta_info` to hold them.
  addExperts({ body }, choice, { experts }, document) {
    if (body['return_routed_experts'] !== true) return
    const { meta_info: info } = choice
    if (typeof info === 'object') Object.assign(info ?? {}, { routed_experts: base64Int32(experts) })
    else document['sglext'] = { routed_experts: base64Int32(experts) }
  },
  refusal({ body, stream }) {
    const param = stream ? sglangFlags.find((flag) => body[flag] === true) : undefined
    return param && { param, message: `${param} is not supported with streaming. Please set stream=false.` }
  },
  hasVersions: true,
}

/** OpenAI has log-probabilities, but no ids and no versions. */
const openai: TokenFieldWriter = {
  isAsked: ({ wantsLogprobs }) => wantsLogprobs,
  addPrompt() {},
  addSampled({ wantsLogprobs }, choice, slice) {
    if (wantsLogprobs) choice['logprobs'] = logprobContent(slice)
  },
  addExperts() {},
  hasVersions: false,
}

/** The simulator as itself: vLLM's fields, and the version of the weights in every event, as forks of vLLM have it. */
const millrace: TokenFieldWriter = { ...vllm, hasVersions: true }

export const tokenFieldWriters: Readonly<Record<ImitationName, TokenFieldWriter>> = {
  vllm,
  sglang,
  openai,
  anthropic: openai,
  millrace,
}

export function returnsTokenIds(name: ImitationName): boolean {
  return name === 'vllm' || name === 'sglang' || name === 'millrace'
}

export function tokenLogprobs({ record, tokens, from }: TokenSlice): [number, number, string][] {
  return tokens.map((token, index) => [record.logprobs[from + index] ?? 0, token.id, token.piece])
}

export function base64Int32(experts: RoutedExperts['experts']): string {
  return Buffer.from(Int32Array.from(experts).buffer).toString('base64')
}

export function logprobContent({ record, tokens, from }: TokenSlice): Fields {
  const content = tokens.map((token, index) => ({
    token: token.piece,
    logprob: record.logprobs[from + index] ?? 0,
    bytes: [...Buffer.from(token.piece)],
    top_logprobs: [],
  }))
  return { content }
}

export function versionSpans(versions: readonly VersionSpan[], count: number): object[] {
  return versions.map(({ from, version }, index) => ({
    version,
    start: from,
    end: versions[index + 1]?.from ?? count,
  }))
}
