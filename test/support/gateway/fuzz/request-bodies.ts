import { RandomConversation } from '../../apis/random-conversation.ts'
import { responsesBody } from '../../apis/responses-body.ts'
import { chatBody, messagesBody } from '../../apis/written-bodies.ts'
import type { ApiName, Json, JsonObject } from '../../../../src/schema/index.ts'
import type { Chance } from './fuzz.ts'
import { mutatedBytes, mutatedJson, spelled } from './mutations.ts'

const schema = { type: 'object', properties: { a: { type: 'string' } }, required: ['a'] }

/** What else a client of each API may say. */
const extras: Readonly<Record<ApiName, Readonly<Record<string, Json>>>> = {
  chat: {
    tools: [{ type: 'function', function: { name: 'f', description: 'does it', parameters: schema, strict: true } }],
    tool_choice: { type: 'function', function: { name: 'f' } },
    response_format: { type: 'json_schema', json_schema: { name: 'x', schema } },
    parallel_tool_calls: false,
    stop: ['a'],
    temperature: 1,
    max_completion_tokens: 50,
    seed: 2,
    stream_options: { include_usage: true },
    logprobs: true,
    return_token_ids: true,
    reasoning_effort: 'low',
    user: 'someone',
    n: 1,
  },
  responses: {
    tools: [{ type: 'function', name: 'f', parameters: schema, strict: false }],
    tool_choice: { type: 'function', name: 'f' },
    text: { format: { type: 'json_schema', name: 'x', schema, strict: true }, verbosity: 'low' },
    reasoning: { effort: 'low', summary: 'auto' },
    include: ['reasoning.encrypted_content'],
    max_output_tokens: 50,
    temperature: 1,
    metadata: { a: 'b' },
    store: false,
    truncation: 'disabled',
    parallel_tool_calls: true,
  },
  messages: {
    tools: [{ name: 'f', description: 'does it', input_schema: schema }],
    tool_choice: { type: 'tool', name: 'f', disable_parallel_tool_use: true },
    output_config: { format: { type: 'json_schema', schema }, effort: 'low' },
    thinking: { type: 'enabled', budget_tokens: 1024 },
    metadata: { user_id: 'u' },
    temperature: 1,
    top_k: 5,
    stop_sequences: ['a'],
  },
}

/** A body that its API allows. */
export function validBody(api: ApiName, chance: Chance): JsonObject {
  const messages = new RandomConversation(chance.below(1_000_000)).messages()
  const write = { chat: chatBody, responses: responsesBody, messages: messagesBody }[api]
  const chosen = Object.entries(extras[api]).filter(() => chance.is(0.25))
  return { ...write(messages), ...Object.fromEntries(chosen), ...(chance.is(0.5) && { stream: true }) }
}

/** What every model can be asked, whichever API it speaks. */
export function plainBody(api: ApiName, chance: Chance): JsonObject & { readonly stream: boolean } {
  const { model: _other, stream, ...body } = validBody(api, chance)
  const plain = Object.entries(body).filter(([key]) => conversationFields.has(key))
  return { ...Object.fromEntries(plain), stream: stream === true }
}

const conversationFields = new Set(['messages', 'input', 'max_tokens', 'instructions', 'system'])

/** Valid, or with values, or with bytes that should not be there; or nothing but bytes. */
export function fuzzedBody(api: ApiName, models: readonly string[], chance: Chance): Buffer {
  const valid = { ...validBody(api, chance), model: chance.pick(models) }
  const kind = chance.below(10)
  if (kind === 0) return Buffer.from(Array.from({ length: chance.below(200) }, () => chance.below(256)))
  if (kind < 3) return Buffer.from(spelled(valid, chance))
  const text = Buffer.from(spelled(mutatedJson(valid, chance), chance))
  return kind < 5 ? mutatedBytes(text, chance) : text
}
