import { describe, expect, test } from 'vitest'
import { codeOf, failureOf } from '../../../test/support/inference/code-of.ts'
import { ask, openBackend, type Setting } from '../../../test/support/inference/open-backend.ts'
import { FakeBackend, goodReply } from '../../../test/support/inference/fake-backend.ts'
import { plainRequest } from '../../../test/support/inference/plain-request.ts'
import { ScriptedServer, sendJson, type Handler } from '../../../test/support/inference/scripted-server.ts'
import type { Backend, BackendRequest, ModelRequest } from '../../apis/backend.ts'
import { modelConfigSchema, type ModelConfigInput } from '../config.ts'
import { Model } from './model.ts'

const { signal } = new AbortController()

const request: Partial<BackendRequest> = {
  messages: [
    { role: 'system', content: 'Be brief.' },
    { role: 'user', content: 'hi' },
  ],
  tools: [{ type: 'function', function: { name: 'f', parameters: { type: 'object' } } }],
  toolChoice: 'required',
  responseFormat: { kind: 'json_schema', name: 'output', schema: { type: 'object' } },
  sampling: {
    maxTokens: 100,
    temperature: 1,
    topP: 1,
    stop: ['x'],
    seed: 1,
    reasoningEffort: 'low',
    extra: { chat_template_kwargs: { enable_thinking: false } },
  },
  // Nobody is to be sent a stream of counts.
  stream: true,
  captureTokens: true,
}

const forEngines = {
  model: 'm',
  messages: request.messages,
  tools: request.tools,
  tool_choice: 'required',
  response_format: { type: 'json_schema', json_schema: { name: 'output', schema: { type: 'object' } } },
  reasoning_effort: 'low',
  chat_template_kwargs: { enable_thinking: false, reasoning_effort: 'low' },
  add_generation_prompt: true,
}

const servers: [what: string, setting: Setting, path: string, body: object][] = [
  ['vLLM', { engine: 'vllm' }, '/tokenize', forEngines],
  ['SGLang', { engine: 'sglang' }, '/tokenize', forEngines],
  [
    'a server of Messages',
    { api: 'messages' },
    '/v1/messages/count_tokens',
    {
      model: 'm',
      system: [{ type: 'text', text: 'Be brief.' }],
      messages: [{ role: 'user', content: [{ type: 'text', text: 'hi' }] }],
      tools: [{ name: 'f', input_schema: { type: 'object' } }],
      tool_choice: { type: 'any' },
      output_config: { effort: 'low', format: { type: 'json_schema', schema: { type: 'object' } } },
    },
  ],
  [
    'a server of Responses',
    { api: 'responses' },
    '/v1/responses/input_tokens',
    {
      model: 'm',
      input: [
        { role: 'system', content: 'Be brief.' },
        { role: 'user', content: 'hi' },
      ],
      tools: [{ type: 'function', name: 'f', parameters: { type: 'object' }, strict: false }],
      tool_choice: 'required',
      text: { format: { type: 'json_schema', name: 'output', schema: { type: 'object' } } },
      reasoning: { effort: 'low' },
    },
  ],
]

describe('tokens are counted at the endpoint of the server', () => {
  test.for(servers)('%s, without the fields of a reply', async ([, setting, path, body]) => {
    await using server = await ScriptedServer.start((response) => {
      sendJson(response, path === '/tokenize' ? { tokens: [1, 2, 3], count: 3, max_model_len: 9 } : { input_tokens: 3 })
    })
    await using backend = openBackend(server.url, setting)
    expect(await backend.countTokens?.(ask(request))).toBe(3)
    expect(server.requests.map((asked) => asked.path)).toEqual([path])
    expect(JSON.parse(server.requests[0]?.body ?? '')).toEqual(body)
  })

  test('a client body is sent unchanged, with its headers', async () => {
    await using server = await ScriptedServer.start((response) => sendJson(response, { input_tokens: 0 }))
    await using backend = openBackend(server.url, { api: 'messages' })
    const body = Buffer.from('{ "model": "m", "new": 1.0 }')
    expect(await backend.countTokens?.(ask({ body, bodyHeaders: { 'anthropic-beta': 'b' } }))).toBe(0)
    expect(server.requests[0]).toMatchObject({ body: body.toString(), headers: { 'anthropic-beta': 'b' } })
  })

  test('the flags that continue the final message are sent to the engine', async () => {
    await using server = await ScriptedServer.start((response) => sendJson(response, { count: 3 }))
    await using backend = openBackend(server.url, { engine: 'vllm' })
    const extra = { add_generation_prompt: false, continue_final_message: true }
    await backend.countTokens?.(ask({ sampling: { extra } }))
    await backend.countTokens?.(ask({ sampling: { extra, reasoningEffort: 'low' } }))
    for (const { body } of server.requests) expect(JSON.parse(body)).toMatchObject(extra)
    expect(server.requests).toHaveLength(2)
  })

  test('a Chat backend with an unknown engine cannot count tokens', async () => {
    await using server = await ScriptedServer.start(() => {})
    await using backend = openBackend(server.url)
    expect(backend.countTokens).toBeUndefined()
  })
})

async function failureOver(handler: Handler): Promise<unknown> {
  await using server = await ScriptedServer.start(handler)
  await using backend = openBackend(server.url, { engine: 'vllm', name: 'model-7b' })
  return await failureOf(() => backend.countTokens?.(ask()))
}

test.each([
  [404, 'Not Found'],
  [405, 'Method Not Allowed'],
  [501, ''],
  // SGLang before it took conversations.
  [400, "1 validation error: {'type': 'missing', 'loc': ('body', 'prompt'), 'input': {'model': 'model-7b'}}"],
])('status %i (%s) is reported as a server that cannot count', async (status, message) => {
  expect(await failureOver((response) => sendJson(response, { message }, status))).toMatchObject({
    code: 'model_rejected',
    message: expect.stringContaining('/tokenize answered') as string,
    data: { status: 400, said: expect.stringMatching(/cannot count tokens: .* vLLM and SGLang/) as string },
  })
})

test('other errors are reported as for a reply', async () => {
  const unknown = { error: { message: 'The model `model-7b` does not exist.' } }
  expect(await failureOver((response) => sendJson(response, unknown, 404))).toMatchObject({ code: 'model_not_found' })
  expect(await failureOver((response) => sendJson(response, { detail: 'no' }, 400))).toMatchObject({
    code: 'model_rejected',
    data: { said: 'no' },
  })
  for (const answer of [{}, { count: '3' }, { count: -1 }, { count: 1.5 }, []]) {
    expect(await failureOver((response) => sendJson(response, answer))).toMatchObject({ code: 'model_malformed' })
  }
  const stream: Handler = (response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' }).end('data: {"count":3}\n\n')
  }
  expect(await failureOver(stream)).toMatchObject({ code: 'model_malformed' })
})

/** One that counts as the test says. */
class CountingBackend extends FakeBackend {
  readonly counts: BackendRequest[] = []
  readonly countTokens: (request: BackendRequest) => Promise<number>

  constructor(name: string, count: (asked: number) => number | Promise<number>) {
    super(name, () => goodReply)
    this.countTokens = async (asked) => {
      this.counts.push(asked)
      return await count(this.counts.length)
    }
  }
}

function modelOver(backends: readonly Backend[], config: Partial<ModelConfigInput> = {}): Model {
  return new Model(modelConfigSchema.parse({ name: 'm', ...config }), backends, { random: () => 0 })
}

const refusal = async (status: number): Promise<number> => {
  await using server = await ScriptedServer.start((response) => sendJson(response, {}, status))
  await using backend = openBackend(server.url, { engine: 'vllm' })
  return (await backend.countTokens?.(ask())) ?? 0
}

test('a temporary failure is retried as often as for a reply', async () => {
  const mended = new CountingBackend('mended', (asked) => (asked < 3 ? refusal(503) : 7))
  await using model = modelOver([mended])
  let waits = 0
  expect(await model.countTokens(plainRequest, { signal, onWaitStart: () => (waits += 1) })).toBe(7)
  expect(mended.counts.map(({ retry }) => retry)).toEqual([0, 1, 2])
  expect(waits).toBe(2)
  const broken = new CountingBackend('broken', () => refusal(503))
  await using hopeless = modelOver([broken], { maxTries: 2 })
  expect(await codeOf(() => hopeless.countTokens(plainRequest, { signal }))).toBe('model_overloaded')
  const refusing = new CountingBackend('refusing', () => refusal(400))
  await using refused = modelOver([refusing])
  expect(await codeOf(() => refused.countTokens(plainRequest, { signal }))).toBe('model_rejected')
  expect([broken.counts.length, refusing.counts.length]).toEqual([2, 1])
})

test('the next backend is asked at once, and a backend that cannot count never is', async () => {
  const down = new CountingBackend('down', () => refusal(503))
  const up = new CountingBackend('up', () => 7)
  const unable = new FakeBackend('unable', () => goodReply)
  await using model = modelOver([unable, down, up])
  const onWaitStart = (): void => expect.fail('nobody has to wait')
  expect(await model.countTokens(plainRequest, { signal, onWaitStart })).toBe(7)
  expect([down.counts.length, up.counts.length]).toEqual([1, 1])
  await using without = modelOver([unable], { name: 'plain' })
  expect(await failureOf(() => without.countTokens(plainRequest, { signal }))).toMatchObject({
    code: 'model_rejected',
    message: expect.stringMatching(/model plain cannot count tokens: /) as string,
    data: { status: 400, param: 'model' },
  })
})

test('an invalid count fails as malformed', async () => {
  await using model = modelOver([new CountingBackend('odd', () => Number.NaN)], { maxTries: 1 })
  expect(await codeOf(() => model.countTokens(plainRequest, { signal }))).toBe('model_malformed')
})

test('counting takes no permit and no rate, and is aborted by its signal', async () => {
  const { promise, resolve } = Promise.withResolvers<number>()
  const counting = new CountingBackend('counting', () => promise)
  await using model = modelOver([counting], { maxConcurrency: 1, requestsPerMinute: 1, tokensPerMinute: 1000 })
  const rateTaker: ModelRequest = { ...plainRequest, sampling: { maxTokens: 1 } }
  expect(await model.call(rateTaker, { signal })).toMatchObject({ status: 'complete' })
  const counts = Array.from({ length: 5 }, () => model.countTokens(plainRequest, { signal }))
  expect(model.isIdle).toBe(false)
  expect(model.status()).toMatchObject({ inFlight: 0, waiting: 0, calls: 1, tries: 1 })
  resolve(7)
  expect(await Promise.all(counts)).toEqual([7, 7, 7, 7, 7])
  expect(model.isIdle).toBe(true)
  const given = AbortSignal.abort(new Error('enough'))
  expect(await failureOf(() => model.countTokens(plainRequest, { signal: given }))).toBe(given.reason)
})
