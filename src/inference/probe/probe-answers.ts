import type { ProbeAnswer } from './_probe-client.ts'
import { isObject } from '../wire/foreign-json.ts'

export type BackendKind = 'vllm' | 'sglang' | 'openai' | 'anthropic' | 'millrace-sim' | 'unknown'

export interface ServedModel {
  readonly id: string
  /** The length of the context in tokens, if the server tells it. */
  readonly contextLength?: number
}

/** Which facts about its tokens a reply has if they are asked for. A training run needs them. */
export interface TokenFields {
  readonly ids: boolean
  readonly logprobs: boolean
  readonly promptIds: boolean
  readonly routedExperts: boolean
  readonly version: boolean
  /** Whether streams have these facts too, and not only whole replies. */
  readonly inStreams: boolean
}

interface ModelWire {
  id?: unknown
  object?: unknown
  type?: unknown
  owned_by?: unknown
  [key: string]: unknown
}

/** The owner that a server writes for the models that it serves itself. */
const owners: Readonly<Record<string, BackendKind>> = { vllm: 'vllm', sglang: 'sglang', millrace: 'millrace-sim' }

/** The names of the context's length: vLLM and SGLang, Anthropic, OpenRouter, Groq, Mistral. */
const contextLengthNames = [
  'max_model_len',
  'max_input_tokens',
  'context_length',
  'context_window',
  'max_context_length',
]

/** The models in a list of OpenAI's or Anthropic's shape. */
export function modelsIn(listing: unknown): ServedModel[] {
  return entriesOf(listing).flatMap((entry) => {
    if (typeof entry.id !== 'string') return []
    const contextLength = contextLengthIn(entry)
    return [contextLength === undefined ? { id: entry.id } : { id: entry.id, contextLength }]
  })
}

/** The kind of server that wrote a list of models, as far as the list shows it. */
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

/** Whether an answer succeeded and has a text under this name. */
export function hasText(answer: ProbeAnswer | undefined, name: string): boolean {
  if (!answer || answer.status >= 300 || !isObject(answer.document)) return false
  return typeof (answer.document as Record<string, unknown>)[name] === 'string'
}

/**
 * The facts about tokens in a whole Chat reply; undefined for other answers. `inStreams`: whether streams may be asked for
 * them.
 */
export function tokenFieldsIn({ document, headers }: ProbeAnswer, inStreams: boolean): TokenFields | undefined {
  const reply = fieldsOf(document)
  const choice: unknown = Array.isArray(reply['choices']) ? reply['choices'][0] : undefined
  if (!isObject(choice)) return undefined
  const fields = fieldsOf(choice)
  const holders = [fields, fieldsOf(fields['sgl_ext']), fieldsOf(fields['meta_info'])]
  // SGLang's own form: each token with its log-probability.
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
