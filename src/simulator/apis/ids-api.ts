import { z } from 'zod'
import { chatServer, type DialectError, type ServerSentEvent } from '../../apis/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { describeIssues, type JsonObject, safeParse } from '../../schema/index.ts'
import type { Delivery, Sample } from '../engine/paced-reply.ts'
import type { SimulatorRequest } from '../engine/tokens.ts'
import type { ApiRequest, SimulatedApi, StreamWriter } from './dialect-api.ts'
import { logprobContent, versionSpans } from './token-fields.ts'

/** The paths of vLLM that take a prompt as token ids, and answer with ids. */
export type IdsPath = '/v1/completions' | '/inference/v1/generate'

const ids = z.array(z.number().int().min(0)).min(1)
const samplingSchema = z.object({
  max_tokens: z.number().int().positive().nullish(),
  stop: z.union([z.string(), z.array(z.string())]).nullish(),
  seed: z.number().int().nullish(),
  temperature: z.number().nullish(),
})

const schemas = {
  '/v1/completions': samplingSchema.extend({
    model: z.string(),
    prompt: z.union([z.string(), ids]),
    stream: z.literal(false).nullish(),
    return_token_ids: z.boolean().nullish(),
    return_tokens_as_token_ids: z.boolean().nullish(),
  }),
  '/inference/v1/generate': z.object({
    model: z.string(),
    token_ids: ids,
    sampling_params: samplingSchema,
    stream: z.literal(false).nullish(),
  }),
} as const

/** Whole replies only: nobody who asks for ids wants them in pieces. */
export class IdsApi implements SimulatedApi {
  readonly name = 'generate'
  readonly #path: IdsPath
  readonly #hasVersions: boolean

  /** `hasVersions`: whether completions name the version of the weights, as in forks of vLLM. */
  constructor(path: IdsPath, hasVersions: boolean) {
    this.#path = path
    this.#hasVersions = hasVersions
  }

  read(body: JsonObject): ApiRequest {
    return this.#path === '/v1/completions'
      ? new CompletionRequest(checked(schemas[this.#path], body), this.#hasVersions)
      : new TokensRequest(checked(schemas[this.#path], body))
  }

  error(error: MillraceError): DialectError {
    return chatServer.error(error)
  }

  streamError(error: MillraceError): ServerSentEvent {
    return chatServer.streamError(error)
  }
}

function checked<Schema extends z.ZodType>(schema: Schema, body: JsonObject): z.output<Schema> {
  const parsed = safeParse(schema, body)
  if (parsed.success) return parsed.data
  const { issues } = parsed.error
  throw new MillraceError('model_rejected', `the request is not valid: ${describeIssues(issues)}`, {
    data: { status: 400, param: issues[0]?.path.join('.') },
  })
}

type SamplingFields = z.output<typeof samplingSchema>

abstract class IdsRequest implements ApiRequest {
  readonly wantsStream = false
  readonly requestName = undefined
  readonly model: string
  readonly request: SimulatorRequest

  constructor(model: string, prompt: readonly number[] | string, fields: SamplingFields) {
    const { max_tokens: maxTokens, stop, seed, temperature } = fields
    this.model = model
    this.request = {
      messages: [],
      ...(typeof prompt === 'string' ? { promptText: prompt } : { promptIds: Int32Array.from(prompt) }),
      tools: [],
      sampling: {
        ...(typeof seed === 'number' && { seed }),
        ...(typeof temperature === 'number' && { temperature }),
        ...(typeof maxTokens === 'number' && { maxTokens }),
        ...(stop && { stop: [stop].flat() }),
      },
      captureTokens: true,
    }
  }

  abstract replyId(delivery: Delivery): string

  abstract whole(delivery: Delivery, sample: Sample): Record<string, unknown>

  stream(): StreamWriter {
    throw new MillraceError('internal', 'replies in ids are not streamed')
  }
}

class CompletionRequest extends IdsRequest {
  readonly #body: z.output<(typeof schemas)['/v1/completions']>
  readonly #hasVersions: boolean

  constructor(body: z.output<(typeof schemas)['/v1/completions']>, hasVersions: boolean) {
    super(body.model, body.prompt, body)
    this.#body = body
    this.#hasVersions = hasVersions
  }

  replyId(delivery: Delivery): string {
    return `cmpl-${delivery.id}`
  }

  whole(delivery: Delivery, sample: Sample): Record<string, unknown> {
    const { tokens, versions } = sample
    const { return_token_ids: wantsIds, return_tokens_as_token_ids: wantsNames } = this.#body
    const record = delivery.reply.tokens
    const promptTokens = delivery.reply.usage.input
    const [version] = versions
    return {
      id: this.replyId(delivery),
      object: 'text_completion',
      created: Math.floor(Date.now() / 1000),
      model: this.model,
      choices: [
        {
          index: 0,
          text: tokens.map(({ piece }) => piece).join(''),
          logprobs: {
            tokens: tokens.map(({ id, piece }) => (wantsNames ? `token_id:${id}` : piece)),
            token_logprobs: tokens.map((_, index) => record?.logprobs[index] ?? 0),
          },
          finish_reason: finishOf(sample),
          ...(wantsIds && {
            token_ids: tokens.map(({ id }) => id),
            prompt_token_ids: Array.from(record?.promptIds ?? []),
          }),
        },
      ],
      usage: {
        prompt_tokens: promptTokens,
        completion_tokens: tokens.length,
        total_tokens: promptTokens + tokens.length,
      },
      ...(this.#hasVersions && version && { metadata: { weight_version: version.version } }),
    }
  }
}

class TokensRequest extends IdsRequest {
  constructor(body: z.output<(typeof schemas)['/inference/v1/generate']>) {
    super(body.model, body.token_ids, body.sampling_params)
  }

  replyId(delivery: Delivery): string {
    return `generate-tokens-${delivery.id}`
  }

  whole(delivery: Delivery, sample: Sample): Record<string, unknown> {
    const { tokens, versions } = sample
    const record = delivery.reply.tokens
    return {
      request_id: this.replyId(delivery),
      choices: [
        {
          index: 0,
          token_ids: tokens.map(({ id }) => id),
          ...(record && { logprobs: logprobContent({ record, tokens, from: 0 }) }),
          finish_reason: finishOf(sample),
          ...(versions.length > 0 && { weight_versions: versionSpans(versions, tokens.length) }),
        },
      ],
    }
  }
}

function finishOf({ isAborted, reply }: Sample): string {
  if (isAborted) return 'abort'
  return reply.finishReason === 'length' ? 'length' : 'stop'
}
