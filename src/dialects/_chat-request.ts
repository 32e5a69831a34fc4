import type { JsonObject, Sampling } from '../schema/index.ts'
import { readChatMessages } from './_chat-messages.ts'
import { readChatFormat, readChatToolChoice, readChatTools } from './_chat-tools.ts'
import { isAbsent, isEmpty, isList } from './_json.ts'
import { rejected } from './_rejected.ts'
import type { RequestDraft } from './_request-draft.ts'
import {
  optionalCount,
  optionalFlag,
  optionalInteger,
  optionalObject,
  optionalSeed,
  optionalText,
  optionalTexts,
  requiredText,
  unknownFields,
  readTemperature,
} from './_request-fields.ts'
import type { DialectRequest, SaidBefore } from './server-dialect.ts'
import { Untranslatable } from './_untranslatable.ts'

/** Fields that, unless they are empty, have a meaning in this API alone. */
const ownFields = ['audio', 'functions', 'function_call'] as const

/** The most choices of one request, as OpenAI has it. */
export const maxChoices = 128

const knownFields: ReadonlySet<string> = new Set([
  ...ownFields,
  'prediction',
  'web_search_options',
  'model',
  'messages',
  'tools',
  'tool_choice',
  'response_format',
  'parallel_tool_calls',
  'temperature',
  'top_p',
  'max_tokens',
  'max_completion_tokens',
  'stop',
  'seed',
  'reasoning_effort',
  'n',
  'stream',
  'stream_options',
  'logprobs',
  'top_logprobs',
  'return_token_ids',
  'modalities',
  'store',
])

/** Reads the body of a chat completion request. */
export function readChatRequest(body: JsonObject, before?: SaidBefore): DialectRequest {
  const untranslatable = new Untranslatable('chat', before?.backendApi)
  const choices = optionalInteger(body, 'n') ?? 1
  if (choices < 1 || choices > maxChoices) throw rejected('n', `must be a whole number from 1 to ${maxChoices}`)
  const options = optionalObject(body, 'stream_options')
  const request: RequestDraft = {
    model: requiredText(body, 'model'),
    messages: readChatMessages(body['messages'], untranslatable, before?.messages),
    tools: readChatTools(body, untranslatable),
    sampling: readSampling(body),
    stream: optionalFlag(body, 'stream') ?? false,
    includeUsage: (options && optionalFlag(options, 'include_usage', 'stream_options.')) ?? false,
    wantsTokenIds: optionalFlag(body, 'return_token_ids') ?? false,
    wantsLogprobs: optionalFlag(body, 'logprobs') ?? false,
    untranslatable: untranslatable.names,
    body,
  }
  if (choices > 1) request.choices = choices
  const toolChoice = readChatToolChoice(body, untranslatable)
  if (toolChoice !== undefined) request.toolChoice = toolChoice
  const format = readChatFormat(body, untranslatable)
  if (format !== undefined) request.responseFormat = format
  const parallel = optionalFlag(body, 'parallel_tool_calls')
  if (parallel !== undefined) request.parallelToolCalls = parallel
  noteOwnFields(body, request.wantsLogprobs, untranslatable)
  untranslatable.listIn(request)
  return request
}

function readSampling(body: JsonObject): Sampling {
  const sampling = readTemperature(body)
  // `max_completion_tokens` is the newer name of `max_tokens`.
  const maxTokens = tokenLimit(body, 'max_completion_tokens') ?? tokenLimit(body, 'max_tokens')
  if (maxTokens !== undefined) sampling.maxTokens = maxTokens
  const stop = optionalTexts(body, 'stop')
  if (stop !== undefined) sampling.stop = stop
  const seed = optionalSeed(body)
  if (seed !== undefined) sampling.seed = seed
  const effort = optionalText(body, 'reasoning_effort')
  if (effort !== undefined) sampling.reasoningEffort = effort
  const extra = unknownFields(body, knownFields)
  if (extra !== undefined) sampling.extra = extra
  return sampling
}

/** The token limit. For clients of llama.cpp and LM Studio, -1 means no limit. */
function tokenLimit(body: JsonObject, key: string): number | undefined {
  return body[key] === -1 ? undefined : optionalCount(body, key)
}

function noteOwnFields(body: JsonObject, wantsLogprobs: boolean, untranslatable: Untranslatable): void {
  for (const field of ownFields) if (!isEmpty(body[field])) untranslatable.add(field)
  if (!isEmpty(body['web_search_options'])) untranslatable.addHosted('web_search_options')
  // A guess at the reply, which only makes it faster.
  if (!isEmpty(body['prediction'])) untranslatable.addDropped('prediction')
  if (optionalFlag(body, 'store') === true) untranslatable.addDropped('store')
  if (wantsLogprobs) untranslatable.add('logprobs')
  const alternatives = optionalInteger(body, 'top_logprobs') ?? 0
  if (alternatives > 0) untranslatable.add('top_logprobs')
  const modalities = body['modalities']
  // Every API speaks text.
  if (isList(modalities) && modalities.every((name) => name === 'text')) return
  if (!isAbsent(modalities)) untranslatable.add('modalities')
}
