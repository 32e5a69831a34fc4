import { z } from 'zod'
import { type DialectError, generateServer, type ServerSentEvent } from '../../apis/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { describeIssues, type JsonObject, type RoutedExperts, safeParse, type VersionSpan } from '../../schema/index.ts'
import { type Delivery, type Sample, type TokenGroup, tokensOf } from '../engine/paced-reply.ts'
import type { SimulatorRequest, Token } from '../engine/tokens.ts'
import type { ApiRequest, SimulatedApi, StreamStep, StreamWriter } from './dialect-api.ts'
import { base64Int32, tokenLogprobs, versionSpans } from './token-fields.ts'

const oneText = 'is one text; send several requests instead of a batch'
const oneList = 'is one list of ids; send several requests instead of a batch'

const bodySchema = z
  .object({
    text: z.string({ error: oneText }).exactOptional(),
    input_ids: z
      .array(z.number({ error: oneList }).int().min(0))
      .min(1)
      .exactOptional(),
    sampling_params: z
      .object({
        max_new_tokens: z.number().int().positive().nullish(),
        stop: z.union([z.string(), z.array(z.string())]).nullish(),
        sampling_seed: z.number().int().nullish(),
      })
      .nullish(),
    stream: z.boolean().nullish(),
    return_logprob: z.boolean().nullish(),
    return_prompt_token_ids: z.boolean().nullish(),
    return_routed_experts: z.boolean().nullish(),
    rid: z.string().nullish(),
  })
  .refine((body) => (body.text === undefined) !== (body.input_ids === undefined), {
    message: 'give either text or input_ids',
  })

export class GenerateApi implements SimulatedApi {
  readonly name = 'generate'

  read(body: JsonObject): ApiRequest {
    const parsed = safeParse(bodySchema, body)
    if (!parsed.success) {
      const { issues } = parsed.error
      throw new MillraceError('model_rejected', `the request is not valid: ${describeIssues(issues)}`, {
        data: { status: 400, param: issues[0]?.path.join('.') },
      })
    }
    return new GenerateApiRequest(parsed.data)
  }

  error(error: MillraceError): DialectError {
    return generateServer.error(error)
  }

  streamError(error: MillraceError): ServerSentEvent {
    return generateServer.streamError(error)
  }
}

type GenerateBody = z.output<typeof bodySchema>

/** The content of a document. In a stream it holds everything so far; `finish` is null before the end. */
interface GeneratedTokens {
  readonly tokens: readonly Token[]
  readonly versions: readonly VersionSpan[]
  readonly finish: { readonly type: string } | null
  readonly experts: RoutedExperts | undefined
}

class GenerateApiRequest implements ApiRequest {
  readonly model = undefined
  readonly requestName: string | undefined
  readonly wantsStream: boolean
  readonly request: SimulatorRequest
  readonly #body: GenerateBody

  constructor(body: GenerateBody) {
    const { text, input_ids: ids = [], sampling_params: params, rid } = body
    const { sampling_seed: seed, max_new_tokens: maxTokens, stop } = params ?? {}
    this.#body = body
    this.requestName = rid ?? undefined
    this.wantsStream = body.stream === true
    this.request = {
      messages: [],
      ...(text === undefined ? { promptIds: Int32Array.from(ids) } : { promptText: text }),
      tools: [],
      sampling: {
        ...(typeof seed === 'number' && { seed }),
        ...(typeof maxTokens === 'number' && { maxTokens }),
        ...(stop && { stop: [stop].flat() }),
      },
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

  document(delivery: Delivery, { tokens, versions, finish, experts }: GeneratedTokens): Record<string, unknown> {
    const { return_logprob: logprobs, return_prompt_token_ids: promptIds, return_routed_experts: routed } = this.#body
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
        ...(logprobs &&
          record && {
            output_token_logprobs: tokenLogprobs({ record, tokens, from: 0 }),
            output_token_logprobs_length: tokens.length,
          }),
        ...(routed && experts && { routed_experts: base64Int32(experts.experts) }),
      },
      ...(promptIds && record?.promptIds && { prompt_token_ids: Array.from(record.promptIds) }),
    }
  }
}

/** A cumulative stream: each event repeats the content of the ones before it. */
class GenerateStream implements StreamWriter {
  readonly #apiRequest: GenerateApiRequest
  readonly #delivery: Delivery
  readonly #tokens: readonly Token[]
  readonly #versions: VersionSpan[] = []
  #reported = 0

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
      this.#versions.push({ from: this.#reported, version })
    }
    this.#reported = to
    const generated = { tokens: this.#tokens.slice(0, to), versions: this.#versions, finish: null, experts: undefined }
    return { events: [{ data: this.#apiRequest.document(this.#delivery, generated) }], deltas: [] }
  }

  end(sample: Sample): StreamStep {
    return { events: [{ data: this.#apiRequest.whole(this.#delivery, sample) }, { data: '[DONE]' }], deltas: [] }
  }
}

function versionFields(versions: readonly VersionSpan[], count: number): Record<string, unknown> {
  const last = versions.at(-1)
  if (!last) return {}
  return {
    weight_version: last.version,
    weight_versions: versionSpans(versions, count),
  }
}
