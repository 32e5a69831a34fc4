import type { ProbeAnswer } from './_probe-client.ts'
import { isObject } from '../wire/foreign-json.ts'

export type BackendKind = 'vllm' | 'sglang' | 'openai' | 'anthropic' | 'millrace-sim' | 'unknown'

export interface ServedModel {
  readonly id: string
  /** Tokens, where the server tells. */
  readonly contextLength?: number
}

/** Which of the things that a training run needs come with a reply, if they are asked for. */
export interface TokenFields {
  readonly ids: boolean
  readonly logprobs: boolean
  readonly promptIds: boolean
  readonly routedExperts: boolean
  readonly version: boolean
  /** Whether they come in streams, too, and not with whole replies only. */
  readonly inStreams: boolean
}

interface ModelWire {
  id?: unknown
  object?: unknown
  type?: unknown
  owned_by?: unknown
  [key: string]: unknown
}

/** What servers write as the owner of a model that they themselves serve. */
const owners: Readonly<Record<string, BackendKind>> = { vllm: 'vllm', sglang: 'sglang', millrace: 'millrace-sim' }

/** How vLLM and SGLang, Anthropic, OpenRouter, Groq and Mistral call it. */
const contextLengthNames = [
  'max_model_len',
  'max_input_tokens',
  'context_length',
  'context_window',
  'max_context_length',
]

/** The models that a list in OpenAI's or Anthropic's shape names. */
export function modelsIn(listing: unknown): ServedModel[] {
  return entriesOf(listing).flatMap((entry) => {
    if (typeof entry.id !== 'string') return []
    const contextLength = contextLengthIn(entry)
    return [contextLength === undefined ? { id: entry.id } : { id: entry.id, contextLength }]
  })
}

/** What a list of models gives away about who wrote it. */
export function kindFromListing(listing: unknown): BackendKind {
  const [first] = entriesOf(listing)
  if (!first) return 'unknown'
  if (typeof first.owned_by === 'string') return owners[first.owned_by] ?? 'unknown'
  return first.type === 'model' && first.object === undefined ? 'anthropic' : 'unknown'
}

/** The length of the context that an object names, in tokens. */
export function contextLengthIn(document: unknown): number | undefined {
  if (!isObject(document)) return undefined
  const fields = document as Record<string, unknown>
  for (const name of contextLengthNames) {
    const length = fields[name]
    if (typeof length === 'number' && Number.isInteger(length) && length > 0) return length
  }
  return undefined
}

/** Whether an answer is a good one with a text of this name. */
export function hasText(answer: ProbeAnswer | undefined, name: string): boolean {
  if (!answer || answer.status >= 300 || !isObject(answer.document)) return false
  return typeof (answer.document as Record<string, unknown>)[name] === 'string'
}

/** What a whole chat reply says about its tokens; undefined for anything else. `inStreams`: a stream may be asked, too. */
export function tokenFieldsIn({ document, headers }: ProbeAnswer, inStreams: boolean): TokenFields | undefined {
  const reply = fieldsOf(document)
  const choice: unknown = Array.isArray(reply['choices']) ? reply['choices'][0] : undefined
  if (!isObject(choice)) return undefined
  const fields = fieldsOf(choice)
  const holders = [fields, fieldsOf(fields['sgl_ext']), fieldsOf(fields['meta_info'])]
  // SGLang's own way: each with its log-probability.
  const hasPairs = holders.some((holder) => isFilled(holder['output_token_logprobs']))
  const versions = [reply, fieldsOf(reply['metadata']), fieldsOf(fields['meta_info'])]
  const ids = hasPairs || isFilled(fields['token_ids'])
  return {
    ids,
    logprobs: hasPairs || isFilled(fieldsOf(fields['logprobs'])['content']),
    promptIds:
      [reply, fields].some((holder) => isFilled(holder['prompt_token_ids'])) ||
      holders.some((holder) => isFilled(holder['input_token_ids'])),
    routedExperts: holders.some((holder) => isGiven(holder['routed_experts'])),
    version: isGiven(headers['x-weight-version']) || versions.some((holder) => isGiven(holder['weight_version'])),
    inStreams: ids && inStreams,
  }
}

function entriesOf(listing: unknown): ModelWire[] {
  const { data } = fieldsOf(listing) as { data?: unknown }
  return Array.isArray(data) ? data.filter((entry: unknown): entry is ModelWire => isObject(entry)) : []
}

function fieldsOf(value: unknown): Record<string, unknown> {
  return isObject(value) ? (value as Record<string, unknown>) : {}
}

function isFilled(list: unknown): boolean {
  return Array.isArray(list) && list.length > 0
}

function isGiven(value: unknown): boolean {
  return value !== undefined && value !== null
}
