import { isJsonObject, type JsonObject } from '../schema/index.ts'

/** Every parameter that NeMo Gym lets a row have, with the value of one that is left out. Its servers refuse any other. */
const paramDefaults = {
  background: null,
  include: null,
  input: null,
  instructions: null,
  max_output_tokens: null,
  max_tool_calls: null,
  metadata: null,
  model: null,
  parallel_tool_calls: true,
  previous_response_id: null,
  prompt: null,
  reasoning: null,
  service_tier: null,
  store: null,
  temperature: null,
  text: null,
  tool_choice: 'auto',
  tools: [],
  top_logprobs: null,
  top_p: null,
  truncation: null,
  user: null,
  stream: null,
} as const satisfies JsonObject

export const paramNames = Object.keys(paramDefaults)

/** Fields that NeMo Gym adds to rows and results. Everything else in a row is the row's own. */
const gymFields: ReadonlySet<string> = new Set([
  'responses_create_params',
  'response',
  'reward',
  'agent_ref',
  'skills_ref',
])

/** The fields of a row that its dataset gave it: the task of an environment that has rows as its tasks. */
export function ownFields(row: JsonObject): JsonObject {
  return Object.fromEntries(Object.entries(row).filter(([name]) => !gymFields.has(name) && !name.startsWith('_ng_')))
}

/** The parameters of a row with all that it leaves out. */
export function completeParams(params: JsonObject): JsonObject {
  return { ...paramDefaults, ...params }
}

/** The names of parameters that NeMo Gym does not know. */
export function unknownParams(params: JsonObject): string[] {
  return Object.keys(params).filter((name) => !Object.hasOwn(paramDefaults, name))
}

/** Whether a row says where it stands in a collection, so that the same one again is no other. */
export function hasPlace({ _ng_task_index: task, _ng_rollout_index: rollout }: JsonObject): boolean {
  return task !== undefined && rollout !== undefined
}

/** The name of the agent that a row is for. */
export function agentRefOf({ agent_ref: agent }: JsonObject): string | undefined {
  const name = isJsonObject(agent) ? agent['name'] : undefined
  return typeof name === 'string' ? name : undefined
}
