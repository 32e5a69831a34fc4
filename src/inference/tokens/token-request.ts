import type { JsonObject } from '../../schema/index.ts'
import type { BackendConfig } from '../model-config.ts'

export type EngineName = NonNullable<BackendConfig['engine']>

/** How a backend is asked in Chat Completions for what it sampled. */
export interface TokenRequest {
  readonly fields: JsonObject
  /** Whether a stream may be asked for them, too. */
  readonly inStreams: boolean
}

const requests: Readonly<Record<EngineName, TokenRequest>> = {
  vllm: { fields: { logprobs: true, return_token_ids: true }, inStreams: true },
  // Ids and the version of the weights are in `meta_info`, which a whole reply may have, and a stream that asks for it is
  // refused. Newer ones can put ids into the last chunk of a stream, but not the version. A server that keeps no experts
  // does not mind being asked for them.
  sglang: {
    fields: { logprobs: true, return_prompt_token_ids: true, return_meta_info: true, return_routed_experts: true },
    inStreams: false,
  },
}

/** What can be sent to any of the backends of a model: each ignores the words of the others. */
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
