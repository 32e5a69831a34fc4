import type { JsonObject } from '../../schema/index.ts'
import type { BackendConfig } from '../model-config.ts'

export type EngineName = NonNullable<BackendConfig['engine']>

/** The fields that ask a backend in Chat Completions for its tokens. */
export interface TokenRequest {
  readonly fields: JsonObject
  /** Whether the fields are allowed in a request for a stream. */
  readonly inStreams: boolean
}

const requests: Readonly<Record<EngineName, TokenRequest>> = {
  vllm: { fields: { logprobs: true, return_token_ids: true }, inStreams: true },
  // Ids and the version of the weights are in `meta_info`, which only whole replies have: SGLang refuses a stream that asks
  // for it. Newer versions can put ids into the last chunk of a stream, but not the version. A server that keeps no experts
  // ignores the field that asks for them.
  sglang: {
    fields: { logprobs: true, return_prompt_token_ids: true, return_meta_info: true, return_routed_experts: true },
    inStreams: false,
  },
}

/** The request for a model whose backends may run different engines: each engine ignores the fields of the others. */
export function tokenRequestOf(engines: readonly (EngineName | undefined)[]): TokenRequest {
  const distinct = new Set(engines.map((engine = 'vllm') => engine))
  const [only = 'vllm'] = distinct
  if (distinct.size <= 1) return requests[only]
  const all = Array.from(distinct, (engine) => requests[engine])
  return {
    fields: Object.assign({}, ...all.map(({ fields }) => fields)) as JsonObject,
    inStreams: all.every(({ inStreams }) => inStreams),
  }
}
