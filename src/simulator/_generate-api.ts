import { z } from 'zod'
import { generateServer, type DialectError, type WireEvent } from '../dialects/index.ts'
import { MillraceError } from '../errors/index.ts'
import { describeIssues, type JsonObject } from '../schema/index.ts'
import type { ApiRequest, SimulatedApi } from './_simulated-api.ts'
import { GenerateApiRequest } from './_generate-api-request.ts'

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

/** SGLang's own API: a text or tokens in, a text and tokens out. */
export class GenerateApi implements SimulatedApi {
  readonly name = 'generate'

  read(body: JsonObject): ApiRequest {
    const parsed = bodySchema.safeParse(body)
    if (!parsed.success) {
      const { issues } = parsed.error
      throw new MillraceError('model_rejected', `the request is not valid: ${describeIssues(issues)}`, {
        data: { status: 400, param: issues[0]?.path.join('.') },
      })
    }
    const { text, input_ids: ids, sampling_params: sampling, rid, ...wants } = parsed.data
    const stop = sampling?.stop ?? undefined
    return new GenerateApiRequest({
      prompt: text ?? ids ?? [],
      requestName: rid ?? undefined,
      wantsStream: wants.stream === true,
      wantsLogprobs: wants.return_logprob === true,
      wantsPromptIds: wants.return_prompt_token_ids === true,
      wantsExperts: wants.return_routed_experts === true,
      sampling: {
        ...(typeof sampling?.sampling_seed === 'number' && { seed: sampling.sampling_seed }),
        ...(typeof sampling?.max_new_tokens === 'number' && { maxTokens: sampling.max_new_tokens }),
        ...(stop !== undefined && { stop: typeof stop === 'string' ? [stop] : stop }),
      },
    })
  }

  error(error: MillraceError): DialectError {
    return generateServer.error(error)
  }

  streamError(error: MillraceError): WireEvent {
    return generateServer.streamError(error)
  }
}
