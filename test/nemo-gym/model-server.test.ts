import { expect, test } from 'vitest'
import { type NamedModelInput, resolveModelConfig } from '../../src/inference/index.ts'
import { findModels, GatewayServer } from '../../src/serve/index.ts'
import { SimulatorServer, type SimulatorServerOptions } from '../../src/simulator/index.ts'
import { adminKey, TestGateway } from '../support/gateway/test-gateway.ts'
import { simulatorFolder } from '../support/tokens/simulator-folder.ts'
import { chatReply, ScriptedServer, sendJson } from '../support/inference/scripted-server.ts'

type Fields = Record<string, unknown>

interface Item extends Fields {
  readonly type: string
  readonly prompt_token_ids?: number[]
  readonly generation_token_ids?: number[]
  readonly generation_log_probs?: number[]
}

/** What NeMo Gym's agents do: no key, and only the cookies of the last reply. */
class GymClient {
  readonly #url: string
  cookie: string | undefined

  constructor({ url }: TestGateway) {
    this.#url = url
  }

  async post(path: string, body: unknown, headers: Record<string, string> = {}) {
    const response = await fetch(`${this.#url}${path}`, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        ...(this.cookie !== undefined && { cookie: this.cookie }),
        ...headers,
      },
      body: typeof body === 'string' ? body : JSON.stringify(body),
    })
    const text = await response.text()
    const cookie = response.headers.get('set-cookie')
    expect(cookie).toMatch(/^MillraceGateway___gateway=[\w.-]+; path=\/; Max-Age=1209600; httponly; samesite=lax$/)
    expect(response.headers.get('vary')).toBe('Cookie')
    expect(text).not.toContain(adminKey)
    this.cookie = cookie?.split(';', 1)[0]
    const isJson = response.headers.get('content-type')?.includes('json')
    return { status: response.status, text, body: (isJson ? JSON.parse(text) : {}) as Fields }
  }

  /** One turn of an agent: everything so far goes along, each item as it came. */
  async turn(input: readonly object[]): Promise<Item[]> {
    const { status, body } = await this.post('/v1/responses', { input })
    expect([status, body['object']]).toEqual([200, 'response'])
    return body['output'] as Item[]
  }
}

function user(content: string): object {
  return { type: 'message', role: 'user', content }
}

/** A gateway as the command starts it, before simulators over HTTP. */
async function startGateway(
  simulators: readonly SimulatorServerOptions[] = [{}],
  more: Parameters<typeof TestGateway.start>[0] = {},
  model: Partial<NamedModelInput> = {},
) {
  await using ends = new AsyncDisposableStack()
  const backends = await Promise.all(simulators.map(async (options) => ends.use(await SimulatorServer.start(options))))
  const urls = backends.map(({ url }) => ({ url }))
  const { models, facts } = await findModels({
    backends: [],
    models: { policy: { backends: urls, maxTries: 1, ...model } },
    env: {},
    signal: AbortSignal.timeout(20_000),
  })
  const gateway = ends.use(await TestGateway.start({ nemoGym: true, models, facts, ...more }))
  const moved = ends.move()
  return { gateway, backends, [Symbol.asyncDispose]: () => moved.disposeAsync() }
}

test('a reply is a response as NeMo Gym checks it, for a request that names no model', async () => {
  await using started = await startGateway()
  const { status, body } = await new GymClient(started.gateway).post('/v1/responses', { input: 'What is 6 * 7?' })
  expect(status).toBe(200)
  expect(body).toMatchObject({
    id: expect.stringMatching(/^resp_/),
    created_at: expect.any(Number),
    model: 'policy',
    object: 'response',
    parallel_tool_calls: true,
    tool_choice: 'auto',
    tools: [],
    incomplete_details: null,
    output: [{ type: 'message', id: expect.any(String), content: [{ type: 'output_text', annotations: [] }] }],
    usage: {
      input_tokens: expect.any(Number),
      input_tokens_details: { cached_tokens: expect.any(Number) },
      output_tokens_details: { reasoning_tokens: 0 },
    },
  })
})

test.each([
  ['as the backend counts them', { reasoning: true }, {}],
  ['made exact', { reasoning: true, tokens: 'lossy' }, { tokens: 'exact', tokenizer: simulatorFolder }],
] as const)(
  'each reply has tokens, %s, and each prompt begins with all tokens before it',
  async (_, simulator, model) => {
    await using started = await startGateway([simulator], {}, model)
    const client = new GymClient(started.gateway)
    const history: object[] = []
    let before: number[] = []
    for (const question of ['What is 6 * 7?', 'And 8 * 9?', 'And 2 + 2?']) {
      history.push(user(question))
      const output = await client.turn(history)
      expect(output.map(({ type }) => type)).toEqual(['reasoning', 'message'])
      const [first, last] = output
      expect(first).not.toHaveProperty('prompt_token_ids')
      const {
        prompt_token_ids: prompt = [],
        generation_token_ids: ids = [],
        generation_log_probs: logprobs,
      } = last ?? {}
      expect(prompt.slice(0, before.length)).toEqual(before)
      expect(prompt.length).toBeGreaterThan(before.length)
      expect(logprobs).toHaveLength(ids.length)
      expect(ids.length).toBeGreaterThan(0)
      before = [...prompt, ...ids]
      history.push(...output)
    }
    // One session, in which nothing was said twice.
    const { body } = await started.gateway.ask('/v1/sessions')
    expect(body['sessions']).toHaveLength(1)
    const [{ id }] = body['sessions'] as [{ id: string }]
    const exported = await started.gateway.ask(`/v1/export?session=${id}&rows=merged`)
    expect(exported.text.trim().split('\n')).toHaveLength(2)
  },
)

test('a session stays with its backend, and sessions spread over the backends', async () => {
  await using started = await startGateway([{ recordEmitted: 100 }, { recordEmitted: 100 }])
  const clients = Array.from({ length: 12 }, () => new GymClient(started.gateway))
  for (let round = 0; round < 4; round += 1) {
    await Promise.all(clients.map((client) => client.turn([user('What is 6 * 7?')])))
  }
  const seen = started.backends.map(({ simulator }) => {
    const names = simulator.emitted().replies.map(({ session }) => session)
    return new Set(names.filter((name) => name.startsWith('ses_')))
  })
  expect(seen.reduce((sum, { size }) => sum + size, 0)).toBe(12)
  for (const { size } of seen) expect(size).toBeGreaterThan(0)
})

test.each([
  ['/v1/responses', { input: 'hello' }, 'output'],
  ['/v1/chat/completions', { messages: [{ role: 'user', content: 'hello' }] }, 'choices'],
  ['/v1/messages', { max_tokens: 50, messages: [{ role: 'user', content: 'hello' }] }, 'content'],
])('%s needs no key and no known model, and goes on with its session', async (path, body, field) => {
  await using started = await startGateway()
  const client = new GymClient(started.gateway)
  for (const more of [{}, { model: null }, { model: 'gpt-4.1' }, { model: 'policy' }]) {
    const reply = await client.post(path, { ...body, ...more }, { authorization: 'Bearer dummy' })
    expect([reply.status, reply.body]).toEqual([200, expect.objectContaining({ [field]: expect.anything() })])
  }
  const streamed = await client.post(path, { ...body, stream: true })
  expect([streamed.status, streamed.text]).toEqual([200, expect.stringContaining('data: {')])
  expect(started.gateway.server.gateway.status().openSessions).toBe(1)
})

test('fields in the metadata become fields of the request to the model', async () => {
  await using backend = await ScriptedServer.start((response) => sendJson(response, chatReply('hello')))
  const models = [{ name: 'm', backends: [{ url: backend.url }] }]
  await using gateway = await TestGateway.start({ nemoGym: true, models })
  const client = new GymClient(gateway)
  const metadata = {
    extra_body: '{"min_p":0.1,"temperature":0.5,"big":9007199254740993}',
    chat_template_kwargs: '{"enable_thinking":false}',
  }
  const { body } = await client.post('/v1/responses', { input: 'hello', temperature: 0.9, metadata })
  expect(body['metadata']).toEqual(metadata)
  await client.post('/v1/chat/completions', { messages: [{ role: 'user', content: 'hello' }], metadata })
  const [first, second] = backend.requests.map((request) => JSON.parse(request.body) as Fields)
  const expected = { model: 'm', min_p: 0.1, chat_template_kwargs: { enable_thinking: false } }
  expect(first).toMatchObject({ ...expected, temperature: 0.9 })
  expect(first).not.toHaveProperty('metadata')
  expect(second).toMatchObject({ ...expected, temperature: 0.5 })
  const wrong = await client.post('/v1/responses', { input: 'hello', metadata: { extra_body: '[1]' } })
  expect([wrong.status, wrong.body['detail']]).toEqual([
    422,
    [expect.objectContaining({ loc: ['body', 'metadata'], msg: expect.stringContaining('metadata.extra_body') })],
  ])
})

test('items with tokens and unknown fields are read in a history', async () => {
  await using started = await startGateway()
  const tokens = { prompt_token_ids: [1, 2], generation_token_ids: [3], generation_log_probs: [-0.5] }
  const call = {
    type: 'function_call',
    call_id: 'c1',
    name: 'look',
    arguments: '{}',
    id: null,
    status: null,
    ...tokens,
  }
  const output = { type: 'function_call_output', call_id: 'c1', output: '42', id: null, status: null }
  const said = { type: 'message', role: 'assistant', id: 'msg_1', content: 'So.', phase: 'final', ...tokens }
  const items = await new GymClient(started.gateway).turn([user('Look.'), call, output, said, user('And 6 * 7?')])
  expect(items.at(-1)?.prompt_token_ids?.length).toBeGreaterThan(10)
})

test.each([
  [
    '/v1/responses',
    { input: 'x '.repeat(400) },
    {
      status: 'incomplete',
      incomplete_details: { reason: 'max_output_tokens' },
      output: [{ type: 'message', content: [{ text: '' }] }],
    },
  ],
  [
    '/v1/chat/completions',
    { messages: [{ role: 'user', content: 'x '.repeat(400) }] },
    { choices: [{ finish_reason: 'length', message: { content: '' } }] },
  ],
  [
    '/v1/messages',
    { max_tokens: 9, messages: [{ role: 'user', content: 'x '.repeat(400) }] },
    { stop_reason: 'max_tokens' },
  ],
])('%s ends a conversation that is too long, and fails in a stream', async (path, body, expected) => {
  await using started = await startGateway([{ contextLength: 100 }])
  const client = new GymClient(started.gateway)
  const reply = await client.post(path, body)
  expect([reply.status, reply.body]).toEqual([200, expect.objectContaining({ model: 'policy' })])
  expect(reply.body).toMatchObject(expected)
  const streamed = await client.post(path, { ...body, stream: true })
  expect([streamed.status, streamed.body['error']]).toEqual([400, expect.anything()])
})

test('errors have the shapes of NeMo Gym’s servers, beside those of the API', async () => {
  await using started = await startGateway()
  const client = new GymClient(started.gateway)
  const cases = [
    ['{', [{ type: 'json_invalid', loc: ['body', 1] }]],
    ['[]', [{ type: 'value_error', loc: ['body'] }]],
    [{}, [{ type: 'value_error', loc: ['body', 'input'] }]],
    [{ input: [user('a'), { type: 'message', role: 'robot', content: '' }] }, [{ loc: ['body', 'input', 1, 'role'] }]],
    [{ input: [{ type: 'computer_call' }] }, [{ loc: ['body', 'input', 0, 'type'] }]],
  ] as const
  for (const [body, detail] of cases) {
    const refused = await client.post('/v1/responses', body)
    expect([refused.status, refused.body['error']]).toEqual([
      422,
      expect.objectContaining({ message: expect.any(String) }),
    ])
    expect(refused.body).toMatchObject({ detail })
  }
  const method = await fetch(`${started.gateway.url}/v1/responses`, { headers: { cookie: client.cookie ?? '' } })
  expect([method.status, await method.json()]).toEqual([405, { detail: 'Method Not Allowed' }])
  expect(method.headers.get('set-cookie')).toContain('MillraceGateway___gateway=')
  // All of that was one session.
  expect(started.gateway.server.gateway.status().openSessions).toBe(1)
})

test('what fails is said in `detail`, with a status that NeMo Gym’s clients try again', async () => {
  await using backend = await ScriptedServer.start((response) => sendJson(response, { error: { message: 'no' } }, 503))
  const models = [{ name: 'm', maxTries: 1, maxWaitMs: 1, backends: [{ url: backend.url }] }]
  await using gateway = await TestGateway.start({ nemoGym: true, models })
  const { status, body } = await new GymClient(gateway).post('/v1/responses', { input: 'hello' })
  expect([status, body['detail']]).toEqual([503, expect.stringContaining('overloaded')])
})

test('keys work as without the flag: those that are known, and those that should be', async () => {
  await using started = await startGateway()
  const { gateway } = started
  const { id, key, url } = await gateway.startSession()
  const body = { model: 'policy', input: 'hello' }
  const own = await gateway.ask('/v1/responses', { body, key })
  expect([own.status, own.headers['set-cookie']]).toEqual([200, undefined])
  expect((await gateway.ask('/v1/responses', { body: { input: 'hello' }, key })).status).toBe(400)
  expect((await gateway.ask('/v1/responses', { body, key: 'mrs-unknown' })).status).toBe(401)
  const path = new URL(url).pathname
  for (const asked of [`${path}/v1/responses`, '/generate', '/v1/sessions']) {
    expect((await gateway.ask(asked, { body, key: null })).status).toBe(401)
  }
  expect(await gateway.ask(`/v1/sessions/${id}`)).toMatchObject({ body: { used: { requests: 1 } } })
})

test('web pages are refused, and a cookie of another gateway begins a new session', async () => {
  await using started = await startGateway()
  await using other = await startGateway([{}], { keys: [{ tenant: 'tests', key: 'another key' }] })
  const client = new GymClient(started.gateway)
  const body = { input: 'hello' }
  for (const headers of [{ origin: 'https://example.com' }, { host: 'example.com' }]) {
    expect((await started.gateway.ask('/v1/responses', { body, key: null, headers })).status).toBe(403)
    expect((await started.gateway.ask('/global_config_dict_yaml', { key: null, headers })).status).toBe(403)
  }
  await client.post('/v1/responses', body)
  const elsewhere = new GymClient(other.gateway)
  elsewhere.cookie = client.cookie
  await elsewhere.post('/v1/responses', body)
  expect(elsewhere.cookie).not.toBe(client.cookie)
  const [status, otherStatus] = [started, other].map(({ gateway }) => gateway.server.gateway.status().openSessions)
  expect([status, otherStatus]).toEqual([1, 1])
})

test('the head lists a server for each name of a model, without keys', async () => {
  await using started = await startGateway([{}], { aliases: { judge: 'policy' } })
  const { url } = started.gateway
  const config = await (await fetch(`${url}/global_config_dict_yaml`)).text()
  expect(config).not.toContain(adminKey)
  const block = { responses_api_models: { millrace: { host: '127.0.0.1', port: Number(new URL(url).port) } } }
  expect(JSON.parse(JSON.parse(config) as string)).toMatchObject({ policy: block, judge: block })
  const instances = await (await fetch(`${url}/server_instances`)).json()
  expect(instances).toMatchObject([
    { process_name: 'policy', server_type: 'responses_api_model', name: 'millrace', url },
    { process_name: 'judge' },
  ])
  expect(await (await fetch(url)).json()).toEqual({ status: 'ok' })
})

test('a cookie is good after a restart of the gateway', async () => {
  await using simulator = await SimulatorServer.start({})
  const models = [{ name: 'm', backends: [{ url: simulator.url }] }]
  await using gateway = await TestGateway.start({ nemoGym: true, models })
  const client = new GymClient(gateway)
  await client.turn([user('hello')])
  const first = client.cookie
  await gateway.server.close()
  await using again = await TestGateway.start({ nemoGym: true, models, run: { root: gateway.root, name: 'gateway' } })
  const after = new GymClient(again)
  after.cookie = first
  await after.turn([user('hello')])
  expect(again.server.gateway.status().openSessions).toBe(1)
})

test(
  'of a thousand sessions no more are open than the bound, and one in use never ends',
  { timeout: 60_000 },
  async () => {
    await using started = await startGateway([{ ttftMs: 1500, spread: 0 }], { bounds: { maxCookieSessions: 20 } })
    const { gateway } = started.gateway.server
    const slow = new GymClient(started.gateway).turn([user('hello')])
    for (let round = 0; round < 20; round += 1) {
      // A request that is refused begins a session, too.
      await Promise.all(Array.from({ length: 50 }, () => new GymClient(started.gateway).post('/v1/responses', {})))
      expect(gateway.status().running).toBeLessThanOrEqual(1)
    }
    await expect.poll(() => gateway.status().openSessions).toBeLessThanOrEqual(20)
    expect((await slow).length).toBe(1)
  },
)

test('sessions end when nobody uses them, and their clients get new ones', async () => {
  await using started = await startGateway([{}], { bounds: { cookieSessionIdleMs: 1 } })
  const { gateway } = started.gateway.server
  const client = new GymClient(started.gateway)
  await client.turn([user('hello')])
  const first = client.cookie
  await expect.poll(() => gateway.status().openSessions).toBe(0)
  await client.turn([user('hello')])
  expect(client.cookie).not.toBe(first)
})

test('other machines are not let in', async () => {
  const options = {
    models: [resolveModelConfig({ model: { name: 'm', simulator: {} }, env: {} })],
    keys: [{ tenant: 'tests', key: 'a key of enough characters' }],
    run: { root: '/nowhere', name: 'gateway' },
  }
  const opening = GatewayServer.open({ ...options, host: '0.0.0.0', port: 0, env: {}, nemoGym: true })
  await expect(opening).rejects.toThrow(/cannot listen on 0\.0\.0\.0: listen on 127\.0\.0\.1, and use a tunnel/)
})
