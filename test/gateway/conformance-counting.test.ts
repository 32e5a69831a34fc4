import type Anthropic from '@anthropic-ai/sdk'
import { describe, expect, test } from 'vitest'
import { ScriptedServer, sendJson } from '../support/inference/scripted-server.ts'
import {
  GatewayOverSimulator,
  modelName as model,
  sharedGateway,
  type StartOptions,
  type TestSession,
} from '../support/gateway/gateway-over-simulator.ts'
import { calculator, image, question } from '../support/gateway/calculator-tools.ts'

const system = 'Be brief.'
const parameters = { ...calculator.schema, required: [...calculator.schema.required] }
const { name, description } = calculator

/** A conversation with everything that a prompt is made of, as each client says it. */
const messagesAsked = {
  model,
  system: [{ type: 'text', text: system, cache_control: { type: 'ephemeral' } }],
  tools: [{ name, description, input_schema: parameters }],
  tool_choice: { type: 'auto' },
  thinking: { type: 'enabled', budget_tokens: 1024 },
  messages: [
    { role: 'user', content: question },
    {
      role: 'assistant',
      content: [
        { type: 'thinking', thinking: 'A calculator knows.', signature: 'unsigned' },
        { type: 'tool_use', id: 'call_1', name, input: { expression: '12 * 34' } },
      ],
    },
    { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'call_1', content: '408' }] },
    { role: 'assistant', content: 'It is 408.' },
    { role: 'user', content: 'Sure?' },
  ],
} satisfies Anthropic.MessageCountTokensParams

const responsesAsked = {
  model,
  instructions: system,
  tools: [{ type: 'function' as const, name, description, parameters, strict: true }],
  input: [
    { role: 'user' as const, content: question },
    { type: 'function_call' as const, call_id: 'call_1', name, arguments: '{"expression":"12 * 34"}' },
    { type: 'function_call_output' as const, call_id: 'call_1', output: '408' },
  ],
}

/** Counts in both APIs, and what replies to the same then say. */
async function countedAndUsed(session: TestSession): Promise<{ counted: number[]; used: number[] }> {
  const [anthropic, openai] = [session.anthropic(), session.openai('url')]
  const { input_tokens: messages, ...more } = await anthropic.messages.countTokens(messagesAsked)
  const responses = await openai.responses.inputTokens.count(responsesAsked)
  expect(more).toEqual({})
  expect(responses).toMatchObject({ object: 'response.input_tokens' })
  expect(await session.nodes()).toEqual([])
  const message = await anthropic.messages.create({ ...messagesAsked, max_tokens: 2000 })
  const response = await openai.responses.create(responsesAsked)
  return {
    counted: [messages, responses.input_tokens],
    used: [message.usage.input_tokens, response.usage?.input_tokens ?? 0],
  }
}

const backends: [what: string, options: StartOptions][] = [
  ['vLLM', { api: 'chat' }],
  ['SGLang', { api: 'chat', simulator: { imitate: 'sglang' } }],
  ['Anthropic', { api: 'messages' }],
  ['vLLM asked in Messages', { api: 'messages', simulator: { imitate: 'vllm' } }],
  ['OpenAI asked in Responses', { api: 'responses' }],
]

describe.for(backends)('token counting over %s', ([, options]) => {
  const gateway = sharedGateway(options)

  test('both official clients get the count that a reply then reports; nothing is sampled or recorded', async () => {
    const session = await gateway().startSession({ limits: { maxRequests: 2 } })
    const before = gateway().simulator.stats.requests
    const { counted, used } = await countedAndUsed(session)
    expect(counted).toEqual(used)
    for (const count of counted) expect(count).toBeGreaterThan(20)
    expect(gateway().simulator.stats.requests).toBe(before + 2)
    // Whatever else is used up.
    expect(await session.anthropic().messages.countTokens(messagesAsked)).toMatchObject({ input_tokens: counted[0] })
    expect(await session.view()).toMatchObject({ interactions: 2, used: { requests: 2 } })
  })

  test('a conversation continued with previous_response_id is counted as a whole', async () => {
    const session = await gateway().startSession()
    const client = session.openai()
    const { id, output_text: said } = await client.responses.create({ model, input: question })
    const further = await client.responses.inputTokens.count({ model, previous_response_id: id, input: 'Sure?' })
    const whole = await client.responses.inputTokens.count({
      model,
      input: [
        { role: 'user', content: question },
        { role: 'assistant', content: said },
        { role: 'user', content: 'Sure?' },
      ],
    })
    expect(further.input_tokens).toBe(whole.input_tokens)
  })

  test('an invalid body is refused with an error of its API', async () => {
    const session = await gateway().startSession()
    const { model: _left, ...nameless } = messagesAsked
    await expect(session.anthropic().messages.countTokens({ ...nameless, model: 'nobody' })).rejects.toMatchObject({
      status: 404,
      error: { type: 'error', error: { type: 'not_found_error' } },
    })
    await expect(session.anthropic().messages.countTokens({ model, messages: [] })).rejects.toMatchObject({
      status: 400,
      error: { type: 'error', error: { type: 'invalid_request_error' } },
    })
    await expect(session.openai().responses.inputTokens.count({ input: 'hi' })).rejects.toMatchObject({
      status: 400,
      param: 'model',
    })
    await expect(
      session.openai().responses.inputTokens.count({ model, input: 'hi', previous_response_id: 'resp_nobody' }),
    ).rejects.toMatchObject({ status: 404 })
    await session.end()
    await expect(session.anthropic().messages.countTokens(messagesAsked)).rejects.toMatchObject({ status: 410 })
  })
})

test('Messages-only content is refused by name with a Chat backend, and counted with a Messages backend', async () => {
  const document = { type: 'document', source: { type: 'text', media_type: 'text/plain', data: 'Read.' } } as const
  const asked = { model, messages: [{ role: 'user' as const, content: [document] }] }
  await using chat = await GatewayOverSimulator.start()
  const session = await chat.startSession()
  await expect(session.anthropic().messages.countTokens(asked)).rejects.toMatchObject({
    status: 400,
    message: expect.stringContaining('document') as string,
  })
  await using messages = await GatewayOverSimulator.start({ api: 'messages' })
  const own = await messages.startSession()
  expect((await own.anthropic().messages.countTokens(asked)).input_tokens).toBeGreaterThan(0)
})

test('an image counts as part of the prompt', async () => {
  await using gateway = await GatewayOverSimulator.start()
  const client = (await gateway.startSession()).anthropic()
  const text = { type: 'text', text: 'What is this?' } as const
  const source = { type: 'base64', media_type: 'image/png', data: image.data } as const
  const [without, along] = await Promise.all(
    [[text], [text, { type: 'image', source } as const]].map((content) =>
      client.messages.countTokens({ model, messages: [{ role: 'user', content }] }),
    ),
  )
  expect(along?.input_tokens).toBeGreaterThan(without?.input_tokens ?? Number.NaN)
})

test.for([
  ['one that speaks Chat and is of no engine that is known', { api: 'chat', simulator: { imitate: 'openai' } }],
  ['one of Responses that has no counting', { api: 'responses', simulator: { imitate: 'vllm' } }],
] as const)('a backend that cannot count tokens is reported as such: %s', async ([, options]) => {
  await using gateway = await GatewayOverSimulator.start(options)
  const session = await gateway.startSession()
  const named = expect.stringMatching(
    /cannot count tokens: .*vLLM and SGLang.*OpenAI.*api: responses.*Anthropic/,
  ) as string
  await expect(session.anthropic().messages.countTokens(messagesAsked)).rejects.toMatchObject({
    status: 400,
    error: { type: 'error', error: { type: 'invalid_request_error', message: named } },
  })
  await expect(session.openai().responses.inputTokens.count(responsesAsked)).rejects.toMatchObject({
    status: 400,
    param: 'model',
    error: { message: named },
  })
})

test('the body goes unchanged to a backend of the same API, with the upstream model name', async () => {
  await using server = await ScriptedServer.start((response, { path }) => {
    if (path === '/v1/messages/count_tokens') sendJson(response, { input_tokens: 17 })
    else sendJson(response, { data: [{ type: 'model', id: 'other' }] })
  })
  const models = { other: { upstreamName: 'upstream', backends: [{ url: server.url }] } }
  await using gateway = await GatewayOverSimulator.start({ api: 'messages', models })
  const session = await gateway.startSession()
  const asked = { ...messagesAsked, model: 'other', thread: { type: 'create' }, new_field: 1 }
  const counted = await session.anthropic('url').messages.countTokens(asked, { headers: { 'anthropic-beta': 'new' } })
  expect(counted.input_tokens).toBe(17)
  const sent = server.requests.find(({ path }) => path === '/v1/messages/count_tokens')
  expect(sent?.headers).toMatchObject({ 'anthropic-beta': 'new', 'x-session-id': session.id })
  expect(JSON.parse(sent?.body ?? '')).toEqual({ ...messagesAsked, model: 'upstream', new_field: 1 })
})
