import { expect, test } from 'vitest'
import { MillraceError } from '../errors/index.ts'
import { seededRandom } from '../kit/index.ts'
import { isJsonObject, type Json, type JsonObject, messageSchema, samplingSchema } from '../schema/index.ts'
import { chatServer } from './chat/write-reply.ts'
import { messagesServer } from './messages/write-reply.ts'
import type { DialectRequest } from './server-side.ts'
import { RandomConversation } from '../../test/support/apis/random-conversation.ts'
import { chatBody, messagesBody } from '../../test/support/apis/written-bodies.ts'

// JSON can say what is not finite: `1e309`.
const oddities: readonly Json[] = [
  null,
  true,
  '',
  'text',
  'function',
  0,
  -1,
  Infinity,
  [],
  {},
  [[]],
  { type: 'text' },
  { type: 5 },
]

const chatFields: JsonObject = {
  tools: [{ type: 'function', function: { name: 'f', parameters: {} } }],
  tool_choice: { type: 'function', function: { name: 'f' } },
  response_format: { type: 'json_schema', json_schema: { name: 'x', schema: {} } },
  stop: ['a'],
  temperature: 1,
  max_tokens: 5,
  seed: 2,
  stream_options: { include_usage: true },
}

const messagesFields: JsonObject = {
  tools: [{ name: 'f', input_schema: {} }],
  tool_choice: { type: 'tool', name: 'f', disable_parallel_tool_use: true },
  output_config: { format: { type: 'json_schema', schema: {} }, effort: 'low' },
  thinking: { type: 'enabled', budget_tokens: 10 },
  metadata: { user_id: 'u' },
  temperature: 1,
  top_p: 0.5,
}

test('a body with random faults gives valid messages, or is refused with the path of the field', () => {
  let refused = 0
  for (let seed = 0; seed < 1500; seed += 1) {
    const random = seededRandom(seed)
    const messages = new RandomConversation(seed).messages()
    for (const [dialect, body] of [
      [chatServer, { ...chatBody(messages), ...chatFields }],
      [messagesServer, { ...messagesBody(messages), ...messagesFields }],
    ] as const) {
      const broken = broke(body, random)
      if (!isJsonObject(broken)) continue
      const request = readOrRefusal(() => dialect.read(broken))
      if (request === undefined) refused += 1
      else expectValid(request)
    }
  }
  // Both ways were taken, so that neither is untested.
  expect(refused).toBeGreaterThan(250)
  expect(refused).toBeLessThan(2750)
})

function readOrRefusal(read: () => DialectRequest): DialectRequest | undefined {
  try {
    return read()
  } catch (error) {
    if (!(error instanceof MillraceError)) throw error
    expect(error).toMatchObject({ code: 'model_rejected', data: { status: 400, param: expect.stringMatching(/^\w/) } })
    return undefined
  }
}

function expectValid({ messages, sampling }: DialectRequest): void {
  for (const message of messages) {
    // The schema puts fields in its order, which is the one that counts.
    expect(JSON.stringify(messageSchema.parse(message))).toBe(JSON.stringify(message))
  }
  samplingSchema.parse(sampling)
}

/** The same with one value, somewhere in it, replaced by another, or left out. */
function broke(value: Json, random: () => number): Json {
  const odd = oddities[Math.floor(random() * oddities.length)] ?? null
  if (typeof value !== 'object' || value === null || random() < 0.1) return odd
  const entries = Object.entries(value)
  const chosen = Math.floor(random() * entries.length)
  const changed = entries.map(([key, inner = null], index): [string, Json] => [
    key,
    index === chosen ? broke(inner, random) : inner,
  ])
  if (random() < 0.1) changed.splice(chosen, 1)
  return Array.isArray(value) ? changed.map(([, inner]) => inner) : Object.fromEntries(changed)
}
