import {
  type ContentPart,
  isJsonList,
  type Json,
  type JsonObject,
  type Sampling,
  type UserMessage,
} from '../../schema/index.ts'
import { isAbsent, optionalFlag, optionalInteger, optionalObject, optionalText, rejected } from '../request-fields.ts'
import type { DialectRequest } from '../server-side.ts'

const media = ['image_data', 'video_data', 'audio_data', 'input_embeds'] as const
const maxTokenId = 0x7fff_ffff

/**
 * Reads the body of a request in SGLang's own API, as far as it is recorded; the backend reads the rest. `model` is a field
 * of ours, empty if the client names none. A prompt of ids has no text, so its message is empty: the ids are kept with the
 * tokens that were sampled after them.
 */
export function readGenerateRequest(body: JsonObject): DialectRequest {
  const { text = '' } = body
  if (!isAbsent(text) && typeof text !== 'string') throw rejected('text', `must be one string: ${oneByOne}`)
  const sampling = optionalObject(body, 'sampling_params') ?? {}
  if ((optionalInteger(sampling, 'n', 'sampling_params.') ?? 1) !== 1) {
    throw rejected('sampling_params.n', `must be 1: ${oneByOne}`)
  }
  const promptIds = readIds(body['input_ids'])
  return {
    model: optionalText(body, 'model') ?? '',
    messages: [promptMessage(text ?? '', body)],
    tools: [],
    sampling: samplingOf(sampling),
    stream: optionalFlag(body, 'stream') ?? false,
    includeUsage: true,
    wantsTokenIds: true,
    wantsLogprobs: optionalFlag(body, 'return_logprob') ?? false,
    ...(promptIds && { promptIds }),
    unsupported: [],
    body,
  }
}

const oneByOne = 'send several requests instead of a batch'

function promptMessage(text: string, body: JsonObject): UserMessage {
  const parts = media.flatMap((name): ContentPart[] => {
    const value = body[name]
    return isAbsent(value) ? [] : [{ type: 'other', api: 'generate', value: { [name]: value } }]
  })
  return { role: 'user', content: parts.length === 0 ? text : [{ type: 'text', text }, ...parts] }
}

function readIds(value: Json | undefined): Int32Array | undefined {
  if (isAbsent(value)) return undefined
  if (!isJsonList(value) || !value.every(isTokenId)) {
    throw rejected('input_ids', `must be one list of token ids: ${oneByOne}`)
  }
  return Int32Array.from(value)
}

function isTokenId(value: Json): value is number {
  return typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= maxTokenId
}

/** The sampling, as far as limits need it and the record says it: the body itself goes to the backend. */
function samplingOf(given: JsonObject): Sampling {
  const { max_new_tokens: maxTokens, temperature, top_p: topP, sampling_seed: seed, ...extra } = given
  return {
    ...(typeof temperature === 'number' && { temperature }),
    ...(typeof topP === 'number' && { topP }),
    ...(typeof seed === 'number' && { seed }),
    ...(typeof maxTokens === 'number' && Number.isInteger(maxTokens) && maxTokens > 0 && { maxTokens }),
    ...(Object.keys(extra).length > 0 && { extra }),
  }
}
