import { once } from 'node:events'
import { existsSync, readdirSync } from 'node:fs'
import { type IncomingMessage, request } from 'node:http'
import { join } from 'node:path'
import { text as streamText } from 'node:stream/consumers'
import { defineEnvironment, MillraceError, z } from 'millrace'
import { expect, test } from 'vitest'
import type { ServiceOptions } from '../../src/serve/index.ts'
import { HurriedClock, longMs } from '../support/fast-clock.ts'
import { echo, HeldAnswers, TestServer } from '../support/serve/test-server.ts'
import { temporaryFolder } from '../support/tools/temporary-folder.ts'

const log = { setUp: 0, tornDown: [] as (number | undefined)[] }

const counter = defineEnvironment({
  name: 'counter',
  task: z.object({ initial_count: z.number(), expected_count: z.number(), id: z.unknown().optional() }),
  tasks: () => [],
  setup: ({ task }) => {
    log.setUp += 1
    if (task.initial_count < 0) throw new Error('no such count')
    return { count: task.initial_count }
  },
  teardown: ({ state }) => {
    log.tornDown.push(state?.count)
  },
  prompt: () => 'Count.',
  tools: {
    increment_counter: {
      parameters: z.object({ count: z.number() }),
      run: ({ count }, { state, metric }) => {
        state.count += count
        metric('increments', 1)
        return { success: true }
      },
    },
    fail: {
      parameters: z.object({}),
      run: () => {
        throw new Error('it is broken')
      },
    },
    hang: {
      parameters: z.object({}),
      run: (_, { signal }) =>
        new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason))),
    },
  },
  reward: {
    right: ({ state, task }) => state.count === task.expected_count,
    said: { weight: 0, score: ({ answer, messages }) => Number(answer === 'Done.') * messages.length },
  },
})

function startServer(options: Partial<ServiceOptions> = {}) {
  return TestServer.start(echo, { environment: counter, nemoGym: { failures: 'class' }, ...options })
}

/** What an agent of NeMo Gym does: it sends the cookies of the last reply, and no others. */
class GymClient {
  readonly #url: string
  #cookie: string | undefined

  constructor(server: TestServer, base = '') {
    this.#url = `${server.httpServer.url}${base}`
  }

  async post(path: string, body?: unknown, { signal, type }: { signal?: AbortSignal; type?: string | undefined } = {}) {
    const response = await fetch(`${this.#url}${path}`, {
      method: 'POST',
      headers: {
        ...((type ?? body) !== undefined && { 'content-type': type ?? 'application/json' }),
        ...(this.#cookie !== undefined && { cookie: this.#cookie }),
      },
      ...(body !== undefined && {
        body: typeof body === 'string' || body instanceof Buffer ? body : JSON.stringify(body),
      }),
      ...(signal && { signal }),
    })
    const text = await response.text()
    const cookie = response.headers.get('set-cookie')
    expect(cookie).toContain('Millrace___')
    this.#cookie = cookie?.split(';', 1)[0]
    return { status: response.status, text, type: response.headers.get('content-type') }
  }

  /** Sends the path as it is, and expects that nothing is there. `fetch` would make another one of it. */
  async rawPost(path: string, body: object): Promise<void> {
    const { hostname, port } = new URL(this.#url)
    const text = JSON.stringify(body)
    const headers = {
      'content-type': 'application/json',
      'content-length': String(text.length),
      cookie: this.#cookie ?? '',
    }
    const asked = request({ hostname, port, path, method: 'POST', headers }).end(text)
    const [response] = (await once(asked, 'response')) as [IncomingMessage]
    expect([response.statusCode, await streamText(response)]).toEqual([404, '{"detail":"Not Found"}'])
    const [cookie = ''] = response.headers['set-cookie'] ?? []
    expect(cookie).toContain('Millrace___')
    this.#cookie = cookie.split(';', 1)[0]
  }

  async json(path: string, body?: unknown): Promise<Record<string, unknown>> {
    const { text } = await this.post(path, body)
    return JSON.parse(text) as Record<string, unknown>
  }
}

const params = { input: [{ role: 'user', content: 'Count to 5.' }], tools: [] }
const row = { responses_create_params: params, initial_count: 2, expected_count: 5, agent_ref: { name: 'a' } }

function counted(called = true) {
  const calls = [
    {
      type: 'function_call',
      id: 'fc_1',
      call_id: 'c1',
      name: 'increment_counter',
      arguments: '{"count":3}',
      status: null,
    },
    { type: 'function_call_output', id: null, call_id: 'c1', output: '{"success":true}', status: null },
  ]
  const text = { type: 'output_text', text: 'Done.', annotations: [], logprobs: null }
  const message = { type: 'message', id: 'msg_1', role: 'assistant', status: 'completed', content: [text] }
  return { id: 'resp_1', object: 'response', incomplete_details: null, output: [...(called ? calls : []), message] }
}

test('a session is seeded, its tools are called, and its conversation is scored with its state', async () => {
  await using server = await startServer()
  const client = new GymClient(server)
  expect(await client.post('/seed_session', row)).toMatchObject({ status: 200, text: '{}' })
  expect(await client.post('/increment_counter', { count: 3 })).toEqual({
    status: 200,
    text: '{"success":true}',
    type: 'application/json; charset=utf-8',
  })
  expect(await client.json('/verify', { ...row, response: counted() })).toEqual({
    ...row,
    response: counted(),
    reward: 1,
    outcome: 'completed',
    said: 4,
    increments: 1,
  })
})

test('sessions do not share their state', async () => {
  await using server = await startServer()
  const [one, other] = [new GymClient(server), new GymClient(server, '/agents/counter')]
  for (const client of [one, other]) await client.post('/seed_session', row)
  await one.post('/increment_counter', { count: 3 })
  expect(await other.json('/verify', { ...row, response: counted() })).toMatchObject({ reward: 0 })
  expect(await one.json('/verify', { ...row, response: counted() })).toMatchObject({ reward: 1 })
})

test('whatever a tool does wrong is the body of a reply, and the session goes on', async () => {
  await using server = await startServer()
  const client = new GymClient(server)
  await client.post('/seed_session', row)
  const failed = await client.post('/fail', {})
  expect([failed.status, JSON.parse(failed.text)]).toEqual([500, expect.stringContaining('it is broken')])
  expect(await client.post('/nothing', {})).toMatchObject({ status: 404, text: '{"detail":"Not Found"}' })
  const wrong = await client.post('/increment_counter', { count: 'x' })
  expect([wrong.status, wrong.text]).toEqual([422, expect.stringContaining('"type":"value_error","loc":["body"]')])
  expect((await client.post('/increment_counter', '{')).status).toBe(422)
  // A tool that takes nothing may be sent nothing.
  for (const type of [undefined, 'application/octet-stream']) {
    expect((await client.post('/fail', undefined, { type })).status).toBe(500)
    const empty = await client.post('/increment_counter', undefined, { type })
    expect([empty.status, empty.text]).toEqual([422, expect.stringContaining('"type":"missing","loc":["body"]')])
  }
  const notText = await client.post('/increment_counter', Buffer.from([0x7b, 0xff, 0x7d]))
  expect([notText.status, notText.text]).toEqual([422, expect.stringContaining('not UTF-8')])
  // A client is sent on to the path without the slash.
  expect((await client.post('/increment_counter/', { count: 3 })).text).toBe('{"success":true}')
  expect(await client.json('/verify', { ...row, response: counted() })).toMatchObject({ reward: 1 })
})

test.each([
  '/a/b',
  '/../verify',
  '/%zz',
  '/v1/rollouts',
  '/v1/workers/restart',
  '/agents/counter/v1/rollouts',
  '/run',
  '/v1/responses',
  '/aggregate_metrics',
  `/${'x'.repeat(300)}`,
])('a tool called %s is not there, and the session goes on', async (path) => {
  await using server = await startServer()
  const client = new GymClient(server)
  await client.post('/seed_session', row)
  await client.rawPost(path, { count: 1 })
  expect((await client.post('/increment_counter', { count: 3 })).status).toBe(200)
  expect(server.service.status().accepted.requests).toBe(0)
})

test('a client without a session uses the routes of Millrace as ever', async () => {
  await using server = await startServer()
  const rollout = await server.post({ task: { initial_count: 1, expected_count: 1 } })
  expect(rollout).toMatchObject({ status: 200, body: { reward: 1 } })
  const get = await server.get('/v1/requests')
  expect(get.status).toBe(200)
  // Tools have any path, for POST only.
  expect(await server.get('/nosuch')).toMatchObject({ status: 404, body: { detail: 'Not Found' } })
  expect(await server.get('/run')).toMatchObject({ status: 405, headers: { allow: 'POST' } })
})

test.each([
  ['', 0],
  [', also in a row that is read on a thread', 300_000],
])('integers beyond 2^53 come back as they were sent, and reach no tool as other numbers%s', async (_, characters) => {
  await using server = await startServer()
  const client = new GymClient(server)
  const big = '9007199254740993'
  const sent = { ...row, padding: 'é'.repeat(characters), response: counted() }
  const text = `{"id":${big},"mean":NaN,${JSON.stringify(sent).slice(1)}`
  expect((await client.post('/seed_session', text)).text).toBe('{}')
  const called = await client.post('/increment_counter', `{"count":${big}}`)
  expect([called.status, called.text]).toEqual([422, expect.stringContaining(big)])
  await client.post('/increment_counter', { count: 3 })
  for (const end of ['', ' \n']) {
    const { text: verified } = await client.post('/verify', text + end)
    expect(verified.slice(0, text.length)).toBe(`${text.slice(0, -1)},`)
    expect(JSON.parse(`{${verified.slice(text.length)}`)).toEqual({
      reward: 1,
      outcome: 'completed',
      said: 4,
      increments: 1,
    })
    expect(verified).toContain('"reward":1.0,')
  }
})

test('what is wrong with an item is told with its place in the row', async () => {
  await using server = await startServer()
  const client = new GymClient(server)
  const bad = { type: 'message', role: 'wizard', content: 'x' }
  const response = await client.post('/verify', { ...row, response: { ...counted(), output: [bad] } })
  expect([response.status, response.text]).toEqual([422, expect.stringContaining('response.output[0].role')])
  const given = { ...row, responses_create_params: { input: [bad] }, response: counted() }
  expect((await client.post('/verify', given)).text).toContain('input[0].role')
})

test('a long row is refused as a short one is', async () => {
  await using server = await startServer()
  const client = new GymClient(server)
  const long = { padding: 'x'.repeat(100_000) }
  for (const [path, body, status, text] of [
    ['/seed_session', { ...row, ...long, initial_count: 'x' }, 422, 'initial_count'],
    ['/seed_session', `[${JSON.stringify(long)}]`, 422, 'model_attributes_type'],
    ['/verify', { ...row, ...long }, 422, '"loc":["body","response"]'],
  ] as const) {
    const refused = await client.post(path, body)
    expect([refused.status, refused.text]).toEqual([status, expect.stringContaining(text)])
  }
})

test('a task that is too large is refused', async () => {
  await using server = await startServer({ bounds: { maxTaskBytes: 10_000 } })
  const client = new GymClient(server)
  const refused = await client.post('/seed_session', { ...row, padding: 'x'.repeat(20_000) })
  expect([refused.status, refused.text]).toEqual([422, expect.stringContaining('a task has at most 10000')])
})

test('nothing is set up for a client that has left while its row was read', async () => {
  log.setUp = 0
  await using server = await startServer()
  const { codec, sessions } = server.service
  const read = codec.seededRow.bind(codec)
  const [reading, hasLeft] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  codec.seededRow = async (body) => {
    reading.resolve()
    await hasLeft.promise
    return await read(body)
  }
  const { hostname, port } = new URL(server.httpServer.url)
  const headers = { 'content-type': 'application/json' }
  const leaving = request({ hostname, port, path: '/seed_session', method: 'POST', headers })
  leaving.on('error', () => {})
  leaving.end(JSON.stringify({ ...row, padding: 'x'.repeat(100_000) }))
  await reading.promise
  leaving.destroy()
  // By then it has seen that the connection is closed.
  for (let round = 0; round < 3; round += 1) await server.get('/health')
  hasLeft.resolve()
  for (let round = 0; round < 3; round += 1) await server.get('/health')
  await expect.poll(() => server.service.codec.status().jobs).toBe(0)
  expect([log.setUp, sessions.size]).toEqual([0, 0])
})

test('a session that was not seeded has no tools, and is verified from its row if no reward reads the state', async () => {
  await using server = await startServer()
  const client = new GymClient(server)
  const called = await client.post('/increment_counter', { count: 1 })
  expect([called.status, called.text]).toEqual([400, expect.stringContaining('POST /seed_session first')])
  const verified = await client.post('/verify', { ...row, response: counted() })
  expect([verified.status, verified.text]).toEqual([409, expect.stringContaining('reads the state')])
  // Without calls the state is the one after setup.
  const asked = { ...row, initial_count: 5, response: counted(false) }
  expect(await client.json('/verify', asked)).toMatchObject({ reward: 1, said: 2 })
})

test.each([
  ['/seed_session', undefined, 422, '"type":"missing","loc":["body"]'],
  ['/seed_session', '{', 422, 'json_invalid'],
  ['/seed_session', { ...row, initial_count: 'x' }, 422, 'initial_count'],
  ['/seed_session', { ...row, initial_count: -1 }, 500, 'no such count'],
  ['/verify', row, 422, '"loc":["body","response"]'],
  ['/verify', { ...row, response: { output: [{ type: 'message', role: 'robot' }] } }, 422, 'role'],
])('%s refuses what it cannot use, and sets the cookie', async (path, body, status, text) => {
  await using server = await startServer()
  const refused = await new GymClient(server).post(path, body)
  expect([refused.status, refused.text]).toEqual([status, expect.stringContaining(text)])
})

test('a session goes on after a verification: its tools are called, and it is verified again', async () => {
  await using server = await startServer()
  const client = new GymClient(server)
  await client.post('/seed_session', row)
  await client.post('/increment_counter', { count: 1 })
  expect(await client.json('/verify', { ...row, response: counted() })).toMatchObject({ reward: 0 })
  expect((await client.post('/increment_counter', { count: 2 })).status).toBe(200)
  expect(await client.json('/verify', { ...row, response: counted() })).toMatchObject({ reward: 1 })
})

test('a row is never scored with the state or the task of another', async () => {
  await using server = await startServer()
  const client = new GymClient(server)
  const other = { ...row, initial_count: 7, expected_count: 7 }
  await client.post('/seed_session', row)
  await client.post('/increment_counter', { count: 3 })
  expect(await client.json('/verify', { ...row, response: counted() })).toMatchObject({ reward: 1 })
  expect(await client.json('/verify', { ...other, response: counted(false) })).toMatchObject({ reward: 1 })
  const { status, text } = await client.post('/verify', { ...other, response: counted() })
  expect([status, text]).toEqual([409, expect.stringContaining('never seeded with this row')])
  // Agents add fields of their own.
  const again = { ...row, turn_index: 1, response: counted() }
  expect(await client.json('/verify', again)).toMatchObject({ reward: 1, increments: 1 })
  expect((await client.post('/seed_session', other)).status).toBe(200)
  expect(await client.json('/verify', { ...other, response: counted() })).toMatchObject({ reward: 1 })
})

test('the same task at another place of a collection is another row', async () => {
  await using server = await startServer()
  const client = new GymClient(server)
  const at = (rollout: number) => ({ ...row, _ng_task_index: 0, _ng_rollout_index: rollout, response: counted() })
  await client.post('/seed_session', at(0))
  await client.post('/increment_counter', { count: 3 })
  expect((await client.post('/verify', at(1))).status).toBe(409)
  expect(await client.json('/verify', { ...row, response: counted() })).toMatchObject({ reward: 1 })
})

test('an environment of whole rows compares their parameters', async () => {
  const environment = defineEnvironment({
    name: 'whole',
    task: z.object({ responses_create_params: z.object({ input: z.string() }) }),
    tasks: () => [],
    prompt: () => '',
    setup: ({ task }) => ({ asked: task.responses_create_params.input }),
    reward: ({ task, state }) => Number(task.responses_create_params.input === state.asked) + state.asked.length,
  })
  await using server = await startServer({ environment })
  const client = new GymClient(server)
  const asking = (input: string) => ({ responses_create_params: { input }, response: counted(false) })
  await client.post('/seed_session', asking('a'))
  expect(await client.json('/verify', asking('a'))).toMatchObject({ reward: 2 })
  expect(await client.json('/verify', asking('abc'))).toMatchObject({ reward: 4 })
})

test('a policy that calls tools seed_session and verify gets no other task, no other state and no hint', async () => {
  await using server = await startServer()
  const client = new GymClient(server)
  const easy = { ...row, initial_count: 1, expected_count: 1 }
  await client.post('/seed_session', row)
  expect((await client.post('/seed_session', easy)).status).toBe(409)
  await client.post('/increment_counter', { count: 1 })
  for (const body of [easy, row]) {
    const refused = await client.post('/seed_session', body)
    expect([refused.status, refused.text]).toEqual([409, expect.stringContaining('under way')])
  }
  // It is scored with the row that it made up.
  expect(await client.json('/verify', { ...easy, response: counted(false) })).toMatchObject({ reward: 1 })
  expect((await client.post('/verify', { ...easy, response: counted() })).status).toBe(409)
  expect((await client.post('/verify', { responses_create_params: params, response: counted() })).status).toBe(422)
  expect((await client.post('/seed_session', easy)).status).toBe(409)
  await client.post('/increment_counter', { count: 2 })
  expect(await client.json('/verify', { ...row, response: counted() })).toMatchObject({ reward: 1 })
})

test('sessions of one task have seeds of their own, and the same row has the same', async () => {
  const seeds: number[] = []
  const environment = defineEnvironment({
    ...counter,
    setup: ({ rollout }) => {
      seeds.push(rollout.seed)
      return { count: 0 }
    },
  })
  await using server = await startServer({ environment })
  const places = [
    [0, 0],
    [0, 1],
    [1, 0],
    [0, 1],
  ].map(([task, rollout]) => ({ _ng_task_index: task, _ng_rollout_index: rollout }))
  for (const place of [...places, {}, {}]) await new GymClient(server).post('/seed_session', { ...row, ...place })
  expect(seeds).toHaveLength(6)
  expect(seeds[3]).toBe(seeds[1])
  expect(new Set(seeds).size).toBe(5)
})

test('a session whose tools lost their infrastructure has no reward until it is seeded again', async () => {
  const search = {
    parameters: z.object({ down: z.boolean() }),
    run: ({ down }: { down: boolean }) => {
      if (down) throw new MillraceError('tool_infra', 'the index is down')
      return 'found'
    },
  }
  await using server = await startServer({ environment: { ...counter, tools: { search }, reward: () => 0.5 } })
  const client = new GymClient(server)
  await client.post('/seed_session', row)
  for (const down of [true, false]) {
    expect((await client.post('/search', { down })).status).toBe(down ? 500 : 200)
    const verified = await client.post('/verify', { ...row, response: counted() })
    expect([verified.status, verified.text]).toEqual([500, expect.stringContaining('the index is down')])
  }
  await client.post('/seed_session', row)
  expect(await client.json('/verify', { ...row, response: counted() })).toMatchObject({ reward: 0.5 })
})

test('long tool outputs are kept until their session ends', async () => {
  const environment = defineEnvironment({
    ...counter,
    toolOutput: { spill: true, maxChars: 2_000 },
    tools: { read: { parameters: z.object({}), run: () => 'x'.repeat(5_000) } },
    reward: () => 1,
  })
  await using server = await startServer({ environment })
  const outputs = join(server.service.info.folder, 'outputs')
  const clients = [new GymClient(server), new GymClient(server)]
  for (const client of clients) {
    await client.post('/seed_session', row)
    const { text } = await client.post('/read', {})
    const [output] = /o-[0-9a-f]{12}/.exec(text) ?? []
    expect((await client.post('/read_tool_output', { output, offset: 4_999 })).text).toContain('this is the end')
  }
  expect(readdirSync(outputs)).toHaveLength(2)
  await clients[0]?.post('/verify', { ...row, response: counted() })
  await clients[0]?.post('/seed_session', row)
  expect(readdirSync(outputs)).toHaveLength(1)
  await server.service.close()
  expect(readdirSync(outputs)).toEqual([])
})

test('a verified session waits for its next call as long as any other', async () => {
  using clock = new HurriedClock()
  await using server = await startServer()
  const client = new GymClient(server)
  await client.post('/seed_session', row)
  expect(await client.json('/verify', { ...row, response: counted() })).toMatchObject({ reward: 0 })
  clock.pass(longMs)
  expect((await client.post('/increment_counter', { count: 3 })).status).toBe(200)
})

test('nothing is left of sessions that ended, were abandoned or never used', async () => {
  log.setUp = 0
  log.tornDown.length = 0
  await using server = await startServer({ bounds: { maxSessions: 60 } })
  const { sessions } = server.service
  for (let round = 0; round < 3; round += 1) {
    const clients = Array.from({ length: 60 }, () => new GymClient(server))
    // They take the places of those that were verified.
    await Promise.all(clients.map((client) => client.post('/seed_session', row)))
    expect(sessions.size).toBe(60)
    expect((await new GymClient(server).post('/seed_session', row)).status).toBe(429)
    await Promise.all(
      clients.map(async (client) => {
        await client.post('/increment_counter', { count: 3 })
        expect(await client.json('/verify', { ...row, response: counted() })).toMatchObject({ reward: 1 })
      }),
    )
    expect(sessions.size).toBe(60)
  }
  expect([log.setUp, log.tornDown.length]).toEqual([180, 120])
  // A second seed takes the place of the first, and the server ends those that are left.
  const last = new GymClient(server)
  await last.post('/seed_session', row)
  expect((await last.post('/seed_session', row)).status).toBe(200)
  expect([sessions.size, log.tornDown.length]).toEqual([60, 122])
  await server.service.close()
  expect([sessions.size, log.tornDown.length]).toEqual([0, 182])
})

test('a session that nobody uses is torn down, and a call that its client leaves is stopped', async () => {
  await using server = await startServer({ bounds: { sessionIdleMs: 1 } })
  const { sessions } = server.service
  const client = new GymClient(server)
  await client.post('/seed_session', row)
  await expect.poll(() => sessions.size).toBe(0)
  expect((await client.post('/increment_counter', { count: 1 })).status).toBe(400)
  const leaving = new AbortController()
  await sessions.open('kept', { task: { index: 0, id: '0', data: row }, source: '{}' }, leaving.signal)
  const called = sessions.call('kept', { name: 'hang', arguments: '{}', signal: leaving.signal })
  leaving.abort(new Error('gone'))
  await expect(called).rejects.toThrow('gone')
})

test('while a server drains, open sessions go on and none is begun', async () => {
  const answers = new HeldAnswers()
  await using server = await TestServer.start(answers.script, { environment: counter, nemoGym: { failures: 'class' } })
  const [open, late] = [new GymClient(server), new GymClient(server)]
  await open.post('/seed_session', row)
  const running = server.post({ task: { initial_count: 1, expected_count: 1 } })
  await expect.poll(() => server.service.status().running).toBe(1)
  const drained = server.service.drain()
  for (const [path, body] of [
    ['/seed_session', row],
    ['/verify', { ...row, response: counted(false) }],
  ] as const) {
    const refused = await late.post(path, body)
    expect([refused.status, refused.text]).toEqual([503, expect.stringContaining('draining')])
  }
  expect((await open.post('/increment_counter', { count: 3 })).status).toBe(200)
  expect(await open.json('/verify', { ...row, response: counted() })).toMatchObject({ reward: 1 })
  answers.release('Count.')
  await Promise.all([drained, running])
})

test('a reward on another thread does not hold up other sessions', async () => {
  await using folder = await temporaryFolder()
  const mark = join(folder.path, 'mark')
  const environment = join(import.meta.dirname, '..', 'fixtures', 'offloaded.ts')
  await using server = await TestServer.start(echo, { environment, nemoGym: { failures: 'class' } })
  const asked = { responses_create_params: params, response: counted(false) }
  const spinning = new GymClient(server).post('/verify', { ...asked, how: 'spin', mark })
  let hasEnded = false
  void spinning.then(() => (hasEnded = true))
  await expect.poll(() => existsSync(mark)).toBe(true)
  const client = new GymClient(server)
  for (let round = 0; round < 20; round += 1) await client.post('/seed_session', { ...asked, how: 'score' })
  expect(hasEnded).toBe(false)
  const { status, text } = await spinning
  expect([status, text]).toEqual([500, expect.stringContaining('took longer than its 3000 ms')])
})
