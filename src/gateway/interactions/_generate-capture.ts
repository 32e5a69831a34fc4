import type { DialectRequest } from '../../dialects/index.ts'
import type { JsonObject } from '../../schema/index.ts'
import { without, type ClientView } from './_client-view.ts'

/** Fields that ask SGLang's own API for everything that is recorded. */
export const generateTokenFields: JsonObject = {
  return_logprob: true,
  return_prompt_token_ids: true,
  return_routed_experts: true,
}

/** Fields of `meta_info` that come with `return_logprob`. */
const logprobFields = [
  'output_token_logprobs',
  'output_token_logprobs_length',
  'output_top_logprobs',
  'output_token_ids_logprobs',
  'input_token_logprobs',
  'input_top_logprobs',
  'input_token_ids_logprobs',
]

interface GenerateWire {
  readonly meta_info?: unknown
}

/** Without what a client of SGLang's own API did not ask for. */
export class GenerateView implements ClientView {
  readonly #fields: readonly string[]
  readonly #metaFields: readonly string[]

  constructor({ body, wantsLogprobs }: DialectRequest) {
    this.#fields = body['return_prompt_token_ids'] === true ? [] : ['prompt_token_ids']
    this.#metaFields = [
      ...(wantsLogprobs ? [] : logprobFields),
      ...(body['return_routed_experts'] === true ? [] : ['routed_experts']),
    ]
  }

  of(document: object): object {
    const { meta_info: meta }: GenerateWire = document
    const seen = without(document, this.#fields)
    if (typeof meta !== 'object' || meta === null) return seen
    const seenMeta = without(meta, this.#metaFields)
    return seenMeta === meta ? seen : { ...seen, meta_info: seenMeta }
  }
}
