import type { ModelRequest } from '../apis/index.ts'
import { isJsonObject, type Json, type SamplingRecord } from '../schema/index.ts'
import type { CompleteReply } from './model-client.ts'

type Sampled = Pick<ModelRequest, 'sampling' | 'tools' | 'toolChoice' | 'responseFormat'>
/** Fields of `extra` that are recorded under our own names. They win over what else the request says, as they do on the wire. */
const numberFields = [
  ['temperature', 'temperature'],
  ['top_p', 'topP'],
  ['seed', 'seed'],
  ['top_k', 'topK'],
  ['min_p', 'minP'],
  ['presence_penalty', 'presencePenalty'],
  ['frequency_penalty', 'frequencyPenalty'],
  ['repetition_penalty', 'repetitionPenalty'],
  // The name in llama.cpp.
  ['repeat_penalty', 'repetitionPenalty'],
] as const

/** Fields of `extra` that forbid tokens or change their odds one by one: those of vLLM, SGLang and llama.cpp. */
const constraints = [
  'logit_bias',
  'structured_outputs',
  'guided_json',
  'guided_regex',
  'guided_choice',
  'guided_grammar',
  'structural_tag',
  'json_schema',
  'regex',
  'ebnf',
  'grammar',
  'allowed_token_ids',
  'bad_words',
  'min_tokens',
  'min_new_tokens',
  'ignore_eos',
] as const

interface SampledElsewhere {
  /** Names of fields that restrict the reply and have no place in our own shape. */
  readonly otherConstraints?: readonly string[]
  /** Whether the backend got the client's own words, and so tools and a choice that we have no shape for. */
  readonly isPassed?: boolean
}

/** How a reply was sampled, as far as the request says so. A choice among no tools is not sent, and not recorded. */
export function samplingRecord(
  { sampling, tools, toolChoice: wanted, responseFormat }: Sampled,
  { logprobs, tokens }: Pick<CompleteReply, 'logprobs' | 'tokens'>,
  { otherConstraints = [], isPassed = false }: SampledElsewhere = {},
): SamplingRecord {
  const { temperature, topP, seed, extra = {} } = sampling
  const toolChoice = tools.length > 0 || isPassed ? wanted : undefined
  const record: { -readonly [Field in keyof SamplingRecord]: SamplingRecord[Field] } = {}
  if (temperature !== undefined) record.temperature = temperature
  if (topP !== undefined) record.topP = topP
  if (seed !== undefined) record.seed = seed
  for (const [name, field] of numberFields) {
    const value = extra[name]
    if (typeof value === 'number') record[field] = value
  }
  if (toolChoice !== undefined) record.toolChoice = toolChoice
  if (tools.some(({ function: { strict } }) => strict)) record.strictTools = true
  const constrainedBy = [
    ...(forcesCall(toolChoice) || forcesCall(extra['tool_choice']) ? ['tool_choice'] : []),
    ...(responseFormat || forcesForm(extra['response_format']) ? ['response_format'] : []),
    ...constraints.filter((name) => constrains(extra[name])),
    ...otherConstraints,
  ]
  if (constrainedBy.length > 0) record.constrainedBy = constrainedBy
  if (logprobs && tokens && tokens.logprobs.length > 0) record.logprobs = logprobs
  return record
}

function forcesCall(choice: Json | undefined): boolean {
  return choice === 'required' || (typeof choice === 'object' && choice !== null)
}

function forcesForm(format: Json | undefined): boolean {
  return isJsonObject(format) && format['type'] !== 'text'
}

function constrains(value: Json | undefined): boolean {
  if (value === undefined || value === null || value === false || value === 0 || value === '') return false
  return typeof value !== 'object' || Object.keys(value).length > 0
}
