import type { RoutedExperts, Sampling, VersionSpan } from '../schema/index.ts'
import { tokensOf, type Delivery } from './_simulator-answer.ts'
import type { ApiRequest, SimulatorRequest, StreamStep, StreamWriter } from './_simulated-api.ts'
import type { Sample } from './_sample.ts'
import { base64Int32, tokenLogprobs } from './_token-field-writer.ts'
import type { TokenGroup } from './_token-groups.ts'
import { textIds, type Token } from './_token-stream.ts'

interface GenerateBody {
  readonly prompt: string | readonly number[]
  readonly requestName: string | undefined
  readonly wantsStream: boolean
  readonly wantsLogprobs: boolean
  readonly wantsPromptIds: boolean
  readonly wantsExperts: boolean
  readonly sampling: Sampling
}

/** The content of a document. In a stream it holds everything so far; `finish` is null before the end. */
interface Said {
  readonly tokens: readonly Token[]
  readonly versions: readonly VersionSpan[]
  readonly finish: { readonly type: string } | null
  readonly experts: RoutedExperts | undefined
}

/** A request in SGLang's own API. */
export class GenerateApiRequest implements ApiRequest {
  readonly model = undefined
  readonly requestName: string | undefined
  readonly wantsStream: boolean
  readonly request: SimulatorRequest
  readonly #body: GenerateBody

  constructor(body: GenerateBody) {
    const { prompt, sampling } = body
    this.#body = body
    this.requestName = body.requestName
    this.wantsStream = body.wantsStream
    this.request = {
      // Ids are not turned back into words: such prompts are told apart, not understood.
      messages: [{ role: 'user', content: typeof prompt === 'string' ? prompt : prompt.join(' ') }],
      promptIds: typeof prompt === 'string' ? textIds(prompt) : Int32Array.from(prompt),
      tools: [],
      sampling,
      captureTokens: true,
    }
  }

  replyId(delivery: Delivery): string {
    return this.requestName ?? delivery.id
  }

  whole(delivery: Delivery, sample: Sample): Record<string, unknown> {
    const { tokens, versions, isAborted, reply } = sample
    const type = isAborted ? 'abort' : reply.finishReason === 'length' ? 'length' : 'stop'
    return this.document(delivery, { tokens, versions, finish: { type }, experts: reply.tokens?.routedExperts })
  }

  stream(delivery: Delivery): StreamWriter {
    return new GenerateStream(this, delivery)
  }

  document(delivery: Delivery, { tokens, versions, finish, experts }: Said): Record<string, unknown> {
    const { wantsLogprobs, wantsPromptIds, wantsExperts } = this.#body
    const record = delivery.reply.tokens
    return {
      text: tokens.map(({ part, piece }) => (part === 'marker' ? '' : piece)).join(''),
      output_ids: tokens.map((token) => token.id),
      meta_info: {
        id: this.replyId(delivery),
        finish_reason: finish,
        prompt_tokens: delivery.reply.usage.input,
        completion_tokens: tokens.length,
        cached_tokens: 0,
        ...versionFields(versions, tokens.length),
        ...(wantsLogprobs && record && { output_token_logprobs: tokenLogprobs({ record, tokens, from: 0 }) }),
        ...(wantsLogprobs && record && { output_token_logprobs_length: tokens.length }),
        ...(wantsExperts && experts && { routed_experts: base64Int32(experts.experts) }),
      },
      ...(wantsPromptIds && record?.promptIds && { prompt_token_ids: Array.from(record.promptIds) }),
    }
  }
}

/** A cumulative stream: each event repeats the content of the ones before it. */
class GenerateStream implements StreamWriter {
  readonly #apiRequest: GenerateApiRequest
  readonly #delivery: Delivery
  readonly #tokens: readonly Token[]
  readonly #versions: VersionSpan[] = []
  #told = 0

  constructor(apiRequest: GenerateApiRequest, delivery: Delivery) {
    this.#apiRequest = apiRequest
    this.#delivery = delivery
    this.#tokens = tokensOf(delivery)
  }

  start(): StreamStep {
    return { events: [], deltas: [] }
  }

  group({ to }: TokenGroup, version: string | undefined): StreamStep {
    if (version !== undefined && this.#versions.at(-1)?.version !== version) {
      this.#versions.push({ from: this.#told, version })
    }
    this.#told = to
    const said = { tokens: this.#tokens.slice(0, to), versions: this.#versions, finish: null, experts: undefined }
    return { events: [{ data: this.#apiRequest.document(this.#delivery, said) }], deltas: [] }
  }

  end(sample: Sample): StreamStep {
    return { events: [{ data: this.#apiRequest.whole(this.#delivery, sample) }, { data: '[DONE]' }], deltas: [] }
  }
}

/** The version of the last tokens, and the spans of all versions. */
function versionFields(versions: readonly VersionSpan[], count: number): Record<string, unknown> {
  const last = versions.at(-1)
  if (!last) return {}
  return {
    weight_version: last.version,
    weight_versions: versions.map(({ from, version }, index) => {
      return { version, start: from, end: versions[index + 1]?.from ?? count }
    }),
  }
}
