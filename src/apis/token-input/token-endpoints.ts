import { MillraceError } from '../../errors/index.ts'
import { isJsonList, isJsonObject, type Json, type JsonObject } from '../../schema/index.ts'
import type { BackendReply, ModelRequest } from '../backend.ts'
import { type AnswerContext, refuseInExtra, type ReplyParser, type StreamAssembler } from '../client-side.ts'
import { malformedReply, type Source } from '../errors/reply-errors.ts'
import { reportedIn } from '../errors/reported-error.ts'
import { GenerateReader } from '../generate/read-reply.ts'
import { ReplyDraft, tokenCount } from '../reply-draft.ts'
import type { TokenPrompt } from '../tokens/token-prompt.ts'

/** A path of a server that takes a prompt as token ids, and answers with the sampled ids and their log-probabilities. */
export interface TokenEndpoint {
  /** Below the base url (`/v1`) or below the root of the server. */
  readonly path: string
  readonly isBelowRoot: boolean
  /** The body, in pieces: the ids are written once and shared by the turns of a conversation. */
  render(request: ModelRequest, asked: { readonly prompt: TokenPrompt; readonly model: string }): Buffer
  reader(source: Source): ReplyParser
}

/** The fields of `sampling.extra` that decide what the prompt is. The prompt is written here, so they are not sent. */
export const templateFields: readonly string[] = [
  'chat_template',
  'chat_template_kwargs',
  'add_generation_prompt',
  'continue_final_message',
  'add_special_tokens',
  'truncate_prompt_tokens',
  'truncation_side',
]

/** Fields of the other APIs that label a request, and do not change its reply. */
const labels: ReadonlySet<string> = new Set([
  'user',
  'safety_identifier',
  'metadata',
  'prompt_cache_key',
  'prompt_cache_retention',
  'service_tier',
  'verbosity',
])

/** Puts the ids between the fields: the name of their field, and all other fields of the body. */
function bodyWith(name: string, { json }: TokenPrompt, fields: JsonObject): Buffer {
  const head = Buffer.from(`{${JSON.stringify(name)}:[`)
  const tail = Buffer.from(`],${JSON.stringify(fields).slice(1)}`)
  return Buffer.concat([head, json, tail])
}

function extraOf({ sampling: { extra = {} } }: ModelRequest, reserved: readonly string[]): JsonObject {
  for (const key of reserved) refuseInExtra(extra, key)
  return Object.fromEntries(Object.entries(extra).filter(([key]) => !templateFields.includes(key) && !labels.has(key)))
}

/** vLLM's `/v1/completions`, which most servers of OpenAI's older API have in some form. */
export function completionsEndpoint(idsIn: 'names' | 'field'): TokenEndpoint {
  // With the names of tokens alone a reply does not repeat the prompt.
  const fields = idsIn === 'names' ? { return_tokens_as_token_ids: true } : { return_token_ids: true }
  return {
    path: '/completions',
    isBelowRoot: false,
    render(request, { prompt, model }) {
      const { temperature, topP, maxTokens, stop, seed } = request.sampling
      const { responseFormat } = request
      return bodyWith('prompt', prompt, {
        model,
        temperature,
        top_p: topP,
        max_tokens: maxTokens,
        stop,
        seed,
        ...(responseFormat && { response_format: responseFormatOf(responseFormat) }),
        ...extraOf(request, ['model', 'prompt', 'stream', 'n', 'logprobs', 'echo']),
        logprobs: 0,
        skip_special_tokens: false,
        ...fields,
      })
    },
    reader: (source) => new WholeReader(source, readCompletion),
  }
}

/** vLLM's own API for ids, which also names the version of the weights. */
export const vllmGenerateEndpoint: TokenEndpoint = {
  path: '/inference/v1/generate',
  isBelowRoot: true,
  render(request, { prompt, model }) {
    const { temperature, topP, maxTokens, stop, seed } = request.sampling
    const { responseFormat } = request
    const hasStops = stop !== undefined && stop.length > 0
    return bodyWith('token_ids', prompt, {
      model,
      sampling_params: {
        temperature,
        top_p: topP,
        max_tokens: maxTokens,
        stop,
        seed,
        ...(responseFormat && { structured_outputs: structuredOutputs(responseFormat) }),
        ...extraOf(request, ['n', 'logprobs', 'max_tokens', 'detokenize']),
        logprobs: 0,
        // Stop sequences are looked for in the text. Without them the text is not needed.
        detokenize: hasStops,
      },
    })
  },
  reader: (source) => new WholeReader(source, readVllmGenerate),
}

/** SGLang's own API. */
export const sglangGenerateEndpoint: TokenEndpoint = {
  path: '/generate',
  isBelowRoot: true,
  render(request, { prompt }) {
    const { temperature, topP, maxTokens, stop, seed } = request.sampling
    const { responseFormat } = request
    const { min_tokens: least, ...extra } = extraOf(request, sglangOwn)
    const isSampling = ([name]: [string, unknown]): boolean => sglangSampling.has(name)
    const { yes = [], no = [] } = Object.groupBy(Object.entries(extra), (entry) => (isSampling(entry) ? 'yes' : 'no'))
    return bodyWith('input_ids', prompt, {
      ...Object.fromEntries(no),
      sampling_params: {
        temperature,
        top_p: topP,
        max_new_tokens: maxTokens,
        stop,
        sampling_seed: seed,
        ...(responseFormat && { json_schema: JSON.stringify(schemaOf(responseFormat)) }),
        min_new_tokens: least,
        ...Object.fromEntries(yes),
        skip_special_tokens: false,
      },
      return_logprob: true,
    })
  },
  reader: (source) => new GenerateReader(source),
}

const sglangOwn = ['n', 'max_new_tokens', 'text', 'input_ids', 'sampling_params', 'return_logprob', 'stream']

/** What SGLang takes as a sampling parameter. With any other one it fails; beside them it ignores what it does not know. */
const sglangSampling: ReadonlySet<string> = new Set([
  'stop_token_ids',
  'stop_regex',
  'top_k',
  'min_p',
  'frequency_penalty',
  'presence_penalty',
  'repetition_penalty',
  'min_new_tokens',
  'json_schema',
  'regex',
  'ebnf',
  'structural_tag',
  'ignore_eos',
  'spaces_between_special_tokens',
  'no_stop_trim',
  'custom_params',
  'stream_interval',
  'logit_bias',
])

type Format = NonNullable<ModelRequest['responseFormat']>

function responseFormatOf({ kind, ...schema }: Format): JsonObject {
  return kind === 'json_object' ? { type: kind } : { type: kind, json_schema: { ...schema } }
}

function schemaOf(format: Format): JsonObject {
  return format.kind === 'json_object' ? { type: 'object' } : format.schema
}

function structuredOutputs(format: Format): JsonObject {
  return format.kind === 'json_object' ? { json_object: true } : { json: format.schema }
}

/** Reads whole replies only: streams are not asked for. */
class WholeReader implements ReplyParser {
  readonly hasTokens = false
  readonly #source: Source
  readonly #read: (choice: JsonObject, draft: ReplyDraft) => void

  constructor(source: Source, read: (choice: JsonObject, draft: ReplyDraft) => void) {
    this.#source = source
    this.#read = read
  }

  parse(body: unknown, context: AnswerContext): BackendReply {
    const source = this.#source
    if (!isJsonObject(body)) throw malformedReply(source, 'it is not a JSON object')
    const { error, choices, usage } = body
    if (error !== undefined && error !== null) throw reportedIn(source, body)
    const choice = isJsonList(choices) ? choices[0] : undefined
    if (!isJsonObject(choice)) throw malformedReply(source, 'it has no choices')
    const draft = new ReplyDraft(source, context)
    draft.readVersion(body)
    this.#read(choice, draft)
    const { text, finish_reason: finish, stop_reason: stop } = choice
    draft.content = typeof text === 'string' ? text : ''
    draft.finish = typeof finish === 'string' ? finish : ''
    if (typeof stop === 'string') draft.stopSequence = stop
    draft.endTokens(0)
    draft.usage = usageOf(isJsonObject(usage) ? usage : {}, draft)
    const reply = draft.reply()
    if (reply.isAborted || (reply.tokens && reply.tokens.ids.length > 0)) return reply
    throw malformedReply(source, 'it has no token ids')
  }

  assemble(): StreamAssembler {
    throw malformedReply(this.#source, 'it is a stream, and a whole reply was asked for')
  }
}

function usageOf(usage: JsonObject, { tokens }: ReplyDraft): BackendReply['usage'] {
  const { prompt_tokens: input, completion_tokens: output, prompt_tokens_details: details } = usage
  return {
    calls: 1,
    input: tokenCount(input),
    cachedInput: tokenCount(isJsonObject(details) ? details['cached_tokens'] : undefined),
    // Some servers do not count the token that ends the reply.
    output: Math.max(tokenCount(output), tokens.length),
    reasoning: 0,
  }
}

const namedId = /^token_id:(\d+)$/

function readCompletion(
  { token_ids: ids, logprobs, prompt_token_ids: promptIds }: JsonObject,
  { tokens, source }: ReplyDraft,
): void {
  if (!isJsonObject(logprobs)) throw malformedReply(source, 'it has no log-probabilities')
  const { tokens: names, token_logprobs: values } = logprobs
  if (isJsonList(ids)) tokens.addIds(ids)
  else if (isJsonList(names)) tokens.addIds(names.map((name) => idNamed(name)))
  if (isJsonList(promptIds)) tokens.setPromptIds(promptIds)
  if (isJsonList(values)) tokens.addLogprobs(values.map((logprob) => ({ logprob })))
}

function idNamed(name: Json): number | null {
  const [, digits] = typeof name === 'string' ? (namedId.exec(name) ?? []) : []
  return digits === undefined ? null : Number(digits)
}

function readVllmGenerate(
  { token_ids: ids, logprobs, weight_versions: versions }: JsonObject,
  { tokens }: ReplyDraft,
): void {
  if (isJsonList(ids)) tokens.addIds(ids)
  const content = isJsonObject(logprobs) ? logprobs['content'] : undefined
  if (isJsonList(content)) tokens.addLogprobs(content)
  for (const span of isJsonList(versions) ? versions : []) {
    if (!isJsonObject(span)) continue
    const { version, start } = span
    if (typeof version !== 'string' && typeof version !== 'number') continue
    tokens.markVersion(typeof start === 'number' ? start : 0, String(version))
  }
}

/** Whether a reply to a probe of `completionsEndpoint('names')` has the ids, and where. */
export function idsInCompletion(document: unknown): 'names' | 'field' | undefined {
  const choice = firstChoice(document)
  if (!choice) return undefined
  const { logprobs, token_ids: ids } = choice
  const names = isJsonObject(logprobs) ? logprobs['tokens'] : undefined
  if (isJsonList(names) && names.length > 0 && names.every((name) => idNamed(name) !== null)) return 'names'
  return isJsonList(ids) && ids.length > 0 ? 'field' : undefined
}

/** Whether the engine ended the reply for reasons of its own: a failure, which may come with status 200, or a weight update. */
export function wasBroken(document: unknown): boolean {
  if (firstChoice(document)?.['finish_reason'] === 'abort') return true
  return isJsonObject(document) && document['error'] !== undefined && document['choices'] === undefined
}

function firstChoice(document: unknown): JsonObject | undefined {
  const choices = isJsonObject(document) ? document['choices'] : undefined
  const choice = isJsonList(choices) ? choices[0] : undefined
  return isJsonObject(choice) ? choice : undefined
}

export function noTokenInput({ url }: Source): MillraceError {
  return new MillraceError(
    'config_invalid',
    `${url} takes no prompts of token ids, so tokens cannot be exact: use vLLM or SGLang, or leave out --exact-tokens (tokens: 'exact' of the model)`,
  )
}
