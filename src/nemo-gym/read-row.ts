import { responsesServer } from '../apis/index.ts'
import { MillraceError } from '../errors/index.ts'
import { andList, nearestName } from '../kit/index.ts'
import {
  isJsonObject,
  type Json,
  type JsonObject,
  type Message,
  type Sampling,
  type ToolDefinition,
} from '../schema/index.ts'
import { paramNames, unknownParams } from './gym-row.ts'

/** What the `responses_create_params` of a row ask for. */
export interface GymRequest {
  readonly messages: readonly Message[]
  readonly tools: readonly ToolDefinition[]
  /** Fields that have no place of their own are in `extra`, as Chat Completions spells them. */
  readonly sampling: Sampling
  /** Names of fields that models are asked without, as nothing changes without them. */
  readonly dropped?: readonly string[]
}

/** Fields of vLLM that a row has in its metadata, as JSON in a string: other metadata does not go to the model. */
const bodyInMetadata = 'extra_body'
const templateInMetadata = 'chat_template_kwargs'

/** Reads the `responses_create_params` of a row. Throws `task_invalid` for what cannot be asked of a model. */
export function readRow(row: JsonObject): GymRequest {
  const { responses_create_params: params } = row
  if (!isJsonObject(params)) {
    throw new MillraceError(
      'task_invalid',
      'the row has no `responses_create_params`: give it an object with `input`, or its agent a benchmark with `prompt_config`',
    )
  }
  try {
    requireKnown(params)
    return readParams(params)
  } catch (error) {
    const { rawMessage } = MillraceError.from(error, 'task_invalid')
    throw new MillraceError('task_invalid', `responses_create_params: ${rawMessage}`, { cause: error })
  }
}

/** NeMo Gym's servers refuse a row with any other field, so the same row gives the same requests there. */
function requireKnown(params: JsonObject): void {
  const [name] = unknownParams(params)
  if (name === undefined) return
  const near = nearestName(name, paramNames)
  const hint =
    near === undefined ? 'fields of the backend go into' : `did you mean \`${near}\`? Fields of the backend go into`
  throw new MillraceError('task_invalid', `NeMo Gym has no field \`${name}\`; ${hint} \`metadata.${bodyInMetadata}\``)
}

/** The same for the parameters alone: errors name a field without the row's `responses_create_params` before it. */
export function readParams(params: JsonObject): GymRequest {
  const { metadata, ...rest } = params
  const { messages, tools, sampling, dropped, ...asked } = readRequest({ ...rest, model: rest['model'] || 'policy' })
  const extra: Record<string, Json | undefined> = { ...sampling.extra }
  const { toolChoice, responseFormat } = asked
  // Without tools, servers refuse these two. `auto` and parallel calls are what they do without being asked.
  if (tools.length > 0) {
    if (asked.parallelToolCalls === false) extra['parallel_tool_calls'] = false
    if (typeof toolChoice === 'object') extra['tool_choice'] = { type: 'function', function: { name: toolChoice.name } }
    else if (toolChoice !== undefined && toolChoice !== 'auto') extra['tool_choice'] = toolChoice
  }
  if (responseFormat) {
    const { kind: type, ...schema } = responseFormat
    extra['response_format'] = type === 'json_schema' ? { type, json_schema: { ...schema } } : { type }
  }
  Object.assign(extra, fieldsInMetadata(metadata))
  const { extra: _extra, ...plain } = sampling
  const known = { messages, tools, sampling: Object.keys(extra).length > 0 ? { ...plain, extra } : plain }
  return dropped ? { ...known, dropped } : known
}

/** The fields of the model's request that are in the metadata. Throws `task_invalid` if they cannot be read. */
export function fieldsInMetadata(metadata: Json | undefined): JsonObject {
  if (!isJsonObject(metadata)) return {}
  const template = jsonIn(metadata, templateInMetadata)
  return { ...jsonIn(metadata, bodyInMetadata), ...(template && { [templateInMetadata]: template }) }
}

function readRequest(params: JsonObject): ReturnType<typeof responsesServer.read> {
  let read: ReturnType<typeof responsesServer.read>
  try {
    read = responsesServer.read(params, { backendApi: 'chat' })
  } catch (error) {
    throw new MillraceError('task_invalid', MillraceError.from(error, 'task_invalid').rawMessage, { cause: error })
  }
  const earlier = read.previousReplyId === undefined ? [] : ['previous_response_id']
  // Without this one the policy could call more tools.
  const bounds = read.dropped?.filter((name) => name === 'max_tool_calls') ?? []
  const unknown = [...read.unsupported, ...(read.hosted ?? []), ...earlier, ...bounds]
  if (unknown.length === 0) return read
  throw new MillraceError('task_invalid', `${andList(unknown)} cannot be asked of every model`)
}

function jsonIn(metadata: JsonObject, name: string): JsonObject | undefined {
  const text = metadata[name]
  if (text === undefined || text === null) return undefined
  let value: unknown
  try {
    value = typeof text === 'string' ? JSON.parse(text) : undefined
  } catch {
    // Told below.
  }
  if (isJsonObject(value)) return value
  throw new MillraceError('task_invalid', `metadata.${name} must be a JSON object, as text`)
}
