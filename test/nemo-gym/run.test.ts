import { defineEnvironment, MillraceError, z } from 'millrace'
import { temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { echo, HeldAnswers, TestServer, wordEnvironment } from '../support/serve/test-server.ts'

const nemoGym = { failures: 'class' } as const
const big = '9007199254740993'

function row(word: string, more: object = {}): object {
  return { responses_create_params: { input: word }, word, agent_ref: { name: 'words' }, ...more }
}

const placed = (word: string, rollout = 0): object => row(word, { _ng_task_index: 0, _ng_rollout_index: rollout })

test('a row gets its parameters, the response, the reward, and its own fields back', async () => {
  await using server = await TestServer.start(echo, { nemoGym })
  const { status, headers, body } = await server.send('POST', '/run', placed('pear'))
  expect(status).toBe(200)
  expect(headers['set-cookie']).toContain('Millrace___words=')
  expect(body).toMatchObject({
    responses_create_params: { input: 'pear', parallel_tool_calls: true, tool_choice: 'auto', tools: [], user: null },
    response: {
      object: 'response',
      status: 'completed',
      model: 'scripted',
      output: [{ type: 'message', role: 'assistant', content: [{ type: 'output_text', text: 'you said pear' }] }],
      parallel_tool_calls: true,
      tool_choice: 'auto',
      tools: [],
      usage: { input_tokens: expect.any(Number), input_tokens_details: {}, output_tokens_details: {} },
    },
    reward: 1,
    outcome: 'completed',
    word: 'pear',
  })
  expect(body).not.toHaveProperty('_ng_task_index')
  expect(Object.keys(body['responses_create_params'] as object)).toHaveLength(23)
})

test('numbers that a double cannot hold come back as they were sent', async () => {
  await using server = await TestServer.start(echo, { nemoGym })
  const text = `{"responses_create_params":{"input":"pear","metadata":{"n":"${big}"},"temperature":1.0},"word":"pear","seed":${big},"ratio":1.0}`
  for (const padding of ['', `,"padding":"${'x'.repeat(100_000)}"`]) {
    const response = await fetch(`${server.httpServer.url}/run`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: `${text.slice(0, -1)}${padding}}`,
    })
    const reply = await response.text()
    expect(reply).toContain(`"seed":${big},"ratio":1.0`)
    expect(reply).toContain('"temperature":1.0')
    expect(reply).toContain('"reward":1.0')
  }
})

test('sampling and the messages of a row reach the model, and without an input the prompt of the environment does', async () => {
  await using server = await TestServer.start(echo, { nemoGym })
  const input = [
    { role: 'system', content: 'Be brief.' },
    { role: 'user', content: 'a pear' },
  ]
  const metadata = { extra_body: '{"seed": 2}' }
  await server.send('POST', '/run', { responses_create_params: { input, temperature: 0.5, metadata }, word: 'pear' })
  await server.send('POST', '/run', { responses_create_params: { input: [] }, word: 'plum' })
  const [first, second] = server.backend.requests
  expect(first).toMatchObject({ messages: input, sampling: { temperature: 0.5, extra: { seed: 2 } } })
  expect(second).toMatchObject({ messages: [{ role: 'user', content: 'plum' }] })
})

/** Its task is the whole row. */
const wholeRows = defineEnvironment({
  name: 'rows',
  task: z.object({ responses_create_params: z.object({ input: z.string() }), expected: z.string() }),
  tasks: () => [],
  prompt: () => 'never',
  reward: ({ task, answer }) => answer === task.expected,
})

test('an environment may take the whole row as its task', async () => {
  await using server = await TestServer.start(echo, { nemoGym, environment: wholeRows })
  const asked = { responses_create_params: { input: 'hello' }, expected: 'you said hello' }
  expect((await server.send('POST', '/run', asked)).body).toMatchObject({ reward: 1 })
})

test('a metric takes the place of no field of the protocol', async () => {
  const names = ['response', 'responses_create_params', 'reward', 'error', 'agent_ref', 'outcome', '_ng_failure_class']
  const environment = defineEnvironment({
    name: 'words',
    task: z.object({ word: z.string() }),
    tasks: () => [],
    prompt: () => 'go',
    reward: {
      half: () => 0.5,
      ...Object.fromEntries([...names, 'word', 'seen'].map((name) => [name, { weight: 0, score: () => 7 }])),
    },
  })
  await using server = await TestServer.start(echo, { nemoGym, environment })
  const { body } = await server.send('POST', '/run', placed('pear'))
  expect(body).toMatchObject({ response: { object: 'response' }, reward: 0.5, outcome: 'completed', seen: 7 })
  expect(body).toMatchObject({ responses_create_params: { input: 'pear' }, word: 'pear' })
  expect(Object.keys(body).toSorted()).toEqual(
    ['outcome', 'response', 'responses_create_params', 'reward', 'seen', 'word'].toSorted(),
  )
})

test('a row says nothing of its rollout', async () => {
  await using server = await TestServer.start(echo, { nemoGym })
  const own = { outcome: 'lost', error: 'mine', other: 'kept' }
  const { body } = await server.send('POST', '/run', row('pear', own))
  expect(body).toMatchObject({ ...own, outcome: 'completed', reward: 1, word: 'pear' })
})

test('the choice of a tool goes to the model, if the environment has the tool', async () => {
  const environment = defineEnvironment({
    ...wordEnvironment,
    tools: { look: { parameters: z.object({}), run: () => 'nothing' } },
  })
  await using server = await TestServer.start(echo, { nemoGym, environment })
  const choosing = (name: string): object => {
    const tools = ['look', 'find'].map((each) => ({ type: 'function', name: each, parameters: {}, strict: false }))
    const choice = { tools, tool_choice: { type: 'function', name }, parallel_tool_calls: false }
    return row('pear', { responses_create_params: { input: 'pear', ...choice } })
  }
  expect((await server.send('POST', '/run', choosing('look'))).body).toMatchObject({ reward: 1 })
  expect(server.backend.requests).toMatchObject([
    { sampling: { extra: { parallel_tool_calls: false, tool_choice: { function: { name: 'look' } } } } },
  ])
  expect((await server.send('POST', '/run', choosing('find'))).body).toMatchObject({
    _ng_failure_class: 'task_invalid',
    _ng_failure_terminal: true,
    error: { message: expect.stringContaining('find, which is no tool of words') },
  })
  expect(server.backend.requests).toHaveLength(1)
})

test('what is wrong with the parameters is told with their name once', async () => {
  await using server = await TestServer.start(echo, { nemoGym })
  const message = 'responses_create_params: input must be a string or a list of at least one item'
  const { body } = await server.send('POST', '/run', row('pear', { responses_create_params: {} }))
  expect(body).toMatchObject({ error: { message } })
})

const misfits = [
  ['no parameters', { word: 'pear' }, 'missing', ['body', 'responses_create_params']],
  [
    'an unknown parameter',
    row('pear', { responses_create_params: { input: 'pear', foo: 1 } }),
    'extra_forbidden',
    ['body', 'responses_create_params', 'foo'],
  ],
  ['no task', { responses_create_params: { input: 'pear' }, x: 1 }, 'value_error', ['body']],
] as const

test.each(misfits)('a row with %s is answered as a failure for ever', async (_what, wrong) => {
  await using server = await TestServer.start(echo, { nemoGym })
  const { status, body } = await server.send('POST', '/run', wrong)
  expect(status).toBe(200)
  expect(body).toMatchObject({
    _ng_failure_class: 'task_invalid',
    _ng_failure_terminal: true,
    error: { message: expect.any(String) },
  })
  expect(body).not.toHaveProperty('reward')
  expect(server.backend.requests).toHaveLength(0)
})

test.each(misfits)('a row with %s is refused with 422 if failures have a status', async (_what, wrong, type, loc) => {
  await using server = await TestServer.start(echo, { nemoGym: { failures: 'status' } })
  const { status, body } = await server.send('POST', '/run', wrong)
  expect(status).toBe(422)
  expect(body).toMatchObject({ detail: [{ type, loc }] })
})

async function sendText(server: TestServer, body: string): Promise<Response> {
  return await fetch(`${server.httpServer.url}/run`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body,
  })
}

test('what is no row is refused whatever failures have', async () => {
  await using server = await TestServer.start(echo, { nemoGym })
  const deepList = '['.repeat(300) + ']'.repeat(300)
  for (const wrong of ['{', '[]', '', '1.0', '1e999', 'NaN', '"a"', deepList]) {
    const response = await sendText(server, wrong)
    expect([wrong, response.status]).toEqual([wrong, 422])
    expect(response.headers.get('set-cookie')).toContain('Millrace___words=')
  }
})

test.each([0, 100_000])('a row of %s more characters that is not UTF-8 is refused', async (length) => {
  await using server = await TestServer.start(echo, { nemoGym })
  const text = JSON.stringify(row('pear', { padding: 'x'.repeat(length) }))
  const body = Buffer.from(text.replace('pear', 'pe\u00ffr'), 'latin1')
  for (const path of ['/run', '/seed_session']) {
    const headers = { 'content-type': 'application/json' }
    const response = await fetch(server.httpServer.url + path, { method: 'POST', headers, body })
    expect([path, response.status]).toEqual([path, 422])
    expect(await response.json()).toMatchObject({
      detail: [{ type: 'json_invalid', ctx: { error: expect.stringContaining('not UTF-8') } }],
    })
  }
})

test('an empty body is one that is missing, whatever its type', async () => {
  await using server = await TestServer.start(echo, { nemoGym })
  for (const type of ['application/json', 'application/octet-stream', 'text/plain']) {
    const headers = { 'content-type': type }
    const response = await fetch(`${server.httpServer.url}/run`, { method: 'POST', headers, body: '' })
    expect([type, response.status]).toEqual([type, 422])
    expect(await response.json()).toMatchObject({ detail: [{ type: 'missing', loc: ['body'] }] })
  }
  const headers = { 'content-type': 'text/csv' }
  const response = await fetch(`${server.httpServer.url}/run`, { method: 'POST', headers, body: 'a' })
  expect(response.status).toBe(415)
})

const deepRow = `{"word":"pear","deep":${'['.repeat(300)}${']'.repeat(300)}}`
const longRow = `{"word":"${'pear'.repeat(200_000)}"}`

test('a row that cannot be read is a failure for ever, or has the status of its fault', async () => {
  for (const failures of ['class', 'status'] as const) {
    await using server = await TestServer.start(echo, { nemoGym: { failures }, bounds: { maxBodyBytes: 500_000 } })
    for (const [wrong, status] of [
      [deepRow, 400],
      [longRow, 413],
    ] as const) {
      const response = await sendText(server, wrong)
      expect(response.status).toBe(failures === 'class' ? 200 : status)
      const failure = { _ng_failure_class: 'task_invalid', _ng_failure_terminal: true }
      expect(await response.json()).toMatchObject(failures === 'class' ? failure : { detail: expect.any(String) })
    }
  }
})

test('a row for which the server has no room to read it is asked for again', async () => {
  await using server = await TestServer.start(echo, { nemoGym, bounds: { maxBodiesBytes: 100_000 } })
  const full = await sendText(server, longRow)
  expect(full.status).toBe(200)
  expect(await full.json()).toMatchObject({ _ng_failure_class: 'overloaded', _ng_no_persist: true })
  const { codec } = server.service
  codec.row = async () => await Promise.reject(new MillraceError('overloaded', 'no thread'))
  const busy = await sendText(server, `{"word":"${'x'.repeat(70_000)}"}`)
  expect(busy.status).toBe(200)
  expect(await busy.json()).toMatchObject({ _ng_failure_class: 'overloaded', _ng_no_persist: true })
})

test('numbers that are not finite are null', async () => {
  await using server = await TestServer.start(echo, { nemoGym })
  const response = await sendText(
    server,
    '{"responses_create_params":{"input":"pear","temperature":NaN},"word":"pear","mean":NaN,"least":-Infinity,"said":"NaN"}',
  )
  expect(await response.json()).toMatchObject({ reward: 1, mean: null, least: null, said: 'NaN' })
})

test('a rollout that failed has a class and no reward, or a status', async () => {
  const fail = (): never => {
    throw new Error('no model today')
  }
  for (const failures of ['class', 'status'] as const) {
    await using server = await TestServer.start(fail, { nemoGym: { failures }, retries: 0 })
    const { status, body } = await server.send('POST', '/run', placed('pear'))
    if (failures === 'status') {
      expect(status).toBe(500)
      expect(body).toContain('no model today')
    } else {
      expect(body).toMatchObject({
        _ng_failure_class: 'model_error',
        error: { message: expect.any(String) },
        response: { status: 'failed', error: { code: 'server_error', message: expect.any(String) } },
        word: 'pear',
      })
      expect(body).not.toHaveProperty('reward')
      expect(body).not.toHaveProperty('_ng_failure_terminal')
    }
  }
})

test('a rollout that failed is a 500 if failures have a status, whatever the backend answered', async () => {
  const refuse = (): never => {
    throw new MillraceError('model_auth', 'the backend answers 401', { data: { status: 401 } })
  }
  await using server = await TestServer.start(refuse, { nemoGym: { failures: 'status' }, retries: 0 })
  const { status, body } = await server.send('POST', '/run', placed('pear'))
  expect([status, body]).toEqual([500, expect.stringContaining('the backend answers 401')])
})

test.each([
  ['weights_stale', 'stale', false],
  ['cancelled', 'cancelled', false],
  ['internal', 'agent_error', true],
] as const)('a rollout that ends with %s has the class %s, and is final: %s', async (code, kind, isTerminal) => {
  const agent = (): Promise<never> => Promise.reject(new MillraceError(code, 'the end'))
  await using server = await TestServer.start(echo, { nemoGym, environment: { ...wordEnvironment, agent } })
  const { body } = await server.send('POST', '/run', placed('pear'))
  expect(body['_ng_failure_class']).toBe(kind)
  expect(body['_ng_failure_terminal']).toBe(isTerminal || undefined)
})

test.each([
  ['', {}],
  [', also if the environment takes whole rows', { environment: wholeRows }],
])('a full server says so for a row that it did not run, so that a collector asks again%s', async (_, options) => {
  const answers = new HeldAnswers()
  await using server = await TestServer.start(answers.script, {
    nemoGym,
    concurrency: 1,
    bounds: { maxQueuedRollouts: 1 },
    ...options,
  })
  const first = server.send('POST', '/run', row('a', { expected: '' }))
  await expect.poll(() => server.service.status().running).toBe(1)
  const second = server.send('POST', '/run', row('b', { expected: '' }))
  await expect.poll(() => server.service.status().queued).toBe(1)
  const { body } = await server.send('POST', '/run', row('c', { expected: '' }))
  expect(body).toMatchObject({ _ng_failure_class: 'overloaded', _ng_no_persist: true })
  answers.release('a', 'b')
  await Promise.all([first, second])
})

test('the same row at the same place joins its rollout, and is a new one after its result was delivered', async () => {
  const answers = new HeldAnswers()
  await using server = await TestServer.start(answers.script, { nemoGym })
  const first = server.send('POST', '/run', placed('pear'))
  await expect.poll(() => answers.asked.has('pear')).toBe(true)
  const again = server.send('POST', '/run', placed('pear'))
  const other = server.send('POST', '/run', placed('pear', 1))
  const unplaced = server.send('POST', '/run', row('pear'))
  await expect.poll(() => server.backend.requests.length).toBe(3)
  answers.release('pear')
  const replies = await Promise.all([first, again, other, unplaced])
  const idOf = ({ body }: { body: Record<string, unknown> }): unknown => (body['response'] as { id: string }).id
  const [a, b, c, d] = replies.map(idOf)
  expect(b).toBe(a)
  expect(new Set([a, c, d]).size).toBe(3)
  expect(idOf(await server.send('POST', '/run', placed('pear')))).not.toBe(a)
  expect(server.backend.requests).toHaveLength(4)
})

test('the same row after a restart joins the rollout that was left, and is a new one afterwards', async () => {
  await using runs = await temporaryRuns()
  const options = { nemoGym, run: { root: runs.root } }
  const answers = new HeldAnswers()
  await using before = await TestServer.start(answers.script, options)
  const gone = before.send('POST', '/run', placed('pear')).catch(() => {})
  await expect.poll(() => answers.asked.has('pear')).toBe(true)
  await before[Symbol.asyncDispose]()
  await gone
  await using after = await TestServer.start(new HeldAnswers().script, options)
  await expect.poll(() => after.backend.requests.length).toBe(1)
  await after[Symbol.asyncDispose]()
  await using last = await TestServer.start(echo, options)
  const reply = await last.send('POST', '/run', placed('pear'))
  expect(reply.body).toMatchObject({ reward: 1 })
  expect(last.backend.requests).toHaveLength(1)
  expect(last.service.status().accepted.rollouts).toBe(0)
  await last.send('POST', '/run', placed('pear'))
  expect(last.backend.requests).toHaveLength(2)
})

test('a result that nobody got is there after a restart, for as long as after a client has left', async () => {
  await using runs = await temporaryRuns()
  const options = { nemoGym, run: { root: runs.root } }
  const answers = new HeldAnswers()
  await using before = await TestServer.start(answers.script, options)
  const client = new AbortController()
  const leaving = (word: string): Promise<unknown> =>
    fetch(`${before.httpServer.url}/run`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(placed(word)),
      signal: client.signal,
    }).catch(() => {})
  const words = ['ended', 'running', 'nobody comes']
  const gone = words.map(leaving)
  await expect.poll(() => answers.asked.size).toBe(3)
  await expect.poll(() => before.service.status().running).toBe(3)
  client.abort()
  await Promise.all(gone)
  answers.release('ended', 'nobody comes')
  await expect.poll(() => before.service.status().outcomes.completed).toBe(2)
  // A row whose result somebody has got is a new one, as without a restart.
  answers.release('delivered')
  await before.send('POST', '/run', placed('delivered'))
  await before[Symbol.asyncDispose]()

  await using after = await TestServer.start(echo, options)
  await expect.poll(() => after.service.status().outcomes.completed).toBe(1)
  for (const word of ['ended', 'running']) {
    expect((await after.send('POST', '/run', placed(word))).body).toMatchObject({ reward: 1, word })
  }
  expect([after.service.status().accepted.rollouts, after.backend.requests.length]).toEqual([0, 1])
  for (const word of ['ended', 'running', 'delivered']) await after.send('POST', '/run', placed(word))
  expect(after.service.status().accepted.rollouts).toBe(3)
  await after[Symbol.asyncDispose]()

  await using last = await TestServer.start(echo, { ...options, bounds: { abandonGraceMs: 0 } })
  await expect.poll(() => last.service.undelivered('nemo-gym.').length).toBe(0)
  await last.send('POST', '/run', placed('nobody comes'))
  expect(last.service.status().accepted.rollouts).toBe(1)
})

test('a client that comes back in the grace finds its rollout, and one that does not has it cancelled', async () => {
  const answers = new HeldAnswers()
  await using server = await TestServer.start(answers.script, { nemoGym, bounds: { abandonGraceMs: 300 } })
  const leave = async (word: string): Promise<void> => {
    const client = new AbortController()
    const gone = fetch(`${server.httpServer.url}/run`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(placed(word)),
      signal: client.signal,
    })
    await expect.poll(() => answers.asked.has(word)).toBe(true)
    client.abort()
    await expect(gone).rejects.toThrow()
  }
  await leave('pear')
  const back = server.send('POST', '/run', placed('pear'))
  await leave('plum')
  await expect.poll(() => answers.aborted.has('plum')).toBe(true)
  expect(answers.aborted.has('pear')).toBe(false)
  answers.release('pear')
  expect((await back).body).toMatchObject({ reward: 1 })
  expect(server.backend.requests).toHaveLength(2)
})

/** Its replies are written on a thread. */
const long = 'x'.repeat(200_000)

test('a result that no thread has room to write waits for one', async () => {
  await using server = await TestServer.start(({ messages }) => `${long} ${messages.length}`, { nemoGym })
  const { codec } = server.service
  const encode = codec.encode.bind(codec)
  let refusals = 0
  codec.encode = (rollout, form) => {
    refusals += 1
    if (refusals < 3) throw new MillraceError('overloaded', 'no thread')
    return encode(rollout, form)
  }
  const { body } = await server.send('POST', '/run', placed('pear'))
  expect([refusals, body['outcome']]).toEqual([3, 'completed'])
  expect(server.backend.requests).toHaveLength(1)
})

test('a result that could not be sent is found by a client that asks again', async () => {
  await using server = await TestServer.start(({ messages }) => `${long} ${messages.length}`, { nemoGym })
  const { codec } = server.service
  const encode = codec.encode.bind(codec)
  codec.encode = () => {
    throw new MillraceError('worker_lost', 'the thread died')
  }
  expect((await server.send('POST', '/run', placed('pear'))).status).toBe(500)
  codec.encode = encode
  expect((await server.send('POST', '/run', placed('pear'))).body).toMatchObject({ outcome: 'completed' })
  expect(server.backend.requests).toHaveLength(1)
})
