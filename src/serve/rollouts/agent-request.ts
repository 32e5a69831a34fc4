import { repeatedFields, responsesFields } from '../../apis/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { nearestName } from '../../kit/index.ts'
import { readParams } from '../../nemo-gym/index.ts'
import { isJsonObject, type Json, type JsonObject, type Message, type Sampling } from '../../schema/index.ts'
import { maxJsonDepth } from '../codec/rollout-json.ts'
import { parseJson } from '../http/body.ts'

/** A request of Responses that an agent answers as if it were a model. Crosses threads. */
export interface AgentRequest {
  /** JSON of the task, for environments that want one. */
  readonly task: string
  readonly messages: readonly Message[]
  readonly tools: readonly string[]
  readonly sampling: Sampling
  readonly isStreamed: boolean
  /** The fields that the response repeats. */
  readonly repeated: JsonObject
}

/** Reads the body of a request. Throws what is wrong with it. */
export function readAgentRequest(body: Uint8Array): AgentRequest {
  const parsed = parseJson(body, maxJsonDepth) as Json
  if (!isJsonObject(parsed)) throw misfit('the body must be a JSON object, as of OpenAI’s Responses')
  requireKnownFields(parsed)
  const { task = {}, stream, background, ...params } = parsed
  if (stream !== undefined && stream !== null && typeof stream !== 'boolean') throw misfit('stream is true or false')
  if (background === true) throw misfit('background is not offered: POST /v1/rollouts with "detached": true is')
  const { input } = params
  const isEmpty = input === undefined || input === null || (Array.isArray(input) && input.length === 0)
  const { messages, tools, sampling } = readOrRefuse(isEmpty ? { ...params, input: '' } : params)
  return {
    task: JSON.stringify(task),
    messages: isEmpty ? [] : messages,
    tools: tools.map(({ function: { name } }) => name),
    sampling,
    isStreamed: stream === true,
    repeated: repeatedFields(params) as JsonObject,
  }
}

/** A model behind the gateway is asked with a field that nobody knows; of an agent's models, each may be another one. */
function requireKnownFields(body: JsonObject): void {
  const known = ['task', ...responsesFields]
  const name = Object.keys(body).find((field) => !known.includes(field))
  if (name === undefined) return
  const near = nearestName(name, known)
  const meant = near === undefined ? '.' : `; did you mean ${near}?`
  throw misfit(`OpenAI’s Responses has no field ${name}${meant} Fields of the backend go into metadata.extra_body`)
}

function readOrRefuse(params: JsonObject): ReturnType<typeof readParams> {
  try {
    return readParams(params)
  } catch (error) {
    throw misfit(MillraceError.from(error, 'usage').rawMessage)
  }
}

function misfit(message: string): MillraceError {
  return new MillraceError('usage', message)
}
