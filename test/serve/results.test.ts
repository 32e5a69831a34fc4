import { expect, test } from 'vitest'
import { echo, HeldAnswers, linesOf, TestServer, type RecordLine } from '../support/serve/test-server.ts'

test('a single task is answered with its record', async () => {
  await using server = await TestServer.start(echo)
  const { status, headers, body } = await server.post({ task: { word: 'apple' }, requestId: 'one' })
  expect(status).toBe(200)
  expect(headers['millrace-request']).toBe('one')
  expect(body).toMatchObject({ id: '0-0', outcome: 'completed', reward: 1, answer: 'you said apple' })
  expect(body['messages']).toEqual([
    { role: 'user', content: 'apple' },
    { role: 'assistant', content: 'you said apple' },
  ])
})

test('several tasks are answered line by line, with every attempt of every task once', async () => {
  await using server = await TestServer.start(echo)
  const lines = await server.lines({ tasks: [{ word: 'a' }, { word: 'b' }, { word: 'c' }], attempts: 2 })
  expect(lines.map(({ id }) => id).toSorted()).toEqual(['0-0', '0-1', '1-0', '1-1', '2-0', '2-1'])
  expect(lines.every(({ outcome }) => outcome === 'completed')).toBe(true)
})

test('a single task is answered with one line if the client accepts lines', async () => {
  await using server = await TestServer.start(echo)
  const reply = await server.open({ task: { word: 'apple' } }, { accept: 'application/x-ndjson' })
  expect(reply.headers['content-type']).toContain('application/x-ndjson')
  expect((await reply.body.text()).split('\n')).toHaveLength(2)
})

test('a line is sent when its rollout ends, while the others still run', async () => {
  const answers = new HeldAnswers()
  await using server = await TestServer.start(answers.script)
  const { body } = await server.open({ tasks: [{ word: 'slow' }, { word: 'quick' }] })
  const lines = linesOf(body)
  await expect.poll(() => answers.asked.size).toBe(2)
  answers.release('quick')
  const first = await lines.next()
  expect(JSON.parse(String(first.value))).toMatchObject({ id: '1-0', answer: 'you said quick' })
  expect(server.service.state('0-0')).toBe('running')
  answers.release('slow')
  const second = await lines.next()
  expect(JSON.parse(String(second.value))).toMatchObject({ id: '0-0', answer: 'you said slow' })
  expect(await lines.next()).toMatchObject({ done: true })
})

test('the sampling of a request overrides that of the server', async () => {
  await using server = await TestServer.start(echo, { sampling: { temperature: 0.5, topP: 0.9 } })
  await server.post({ task: { word: 'apple' }, sampling: { temperature: 0.1 } })
  expect(server.backend.requests[0]?.sampling).toMatchObject({ temperature: 0.1, topP: 0.9 })
})

test('a failed rollout is returned as a result', async () => {
  await using server = await TestServer.start(
    () => {
      throw new Error('the backend is on fire')
    },
    { retries: 0 },
  )
  const { status, body } = await server.post({ task: { word: 'apple' } })
  expect(status).toBe(200)
  expect(body).toMatchObject({ outcome: 'model_error', reward: null })
})

test('ended, running and queued rollouts can be read and listed, newest first', async () => {
  const answers = new HeldAnswers()
  await using server = await TestServer.start(answers.script, { concurrency: 1 })
  answers.release('done')
  await server.post({ task: { word: 'done' }, requestId: 'first' })
  const tasks = [{ word: 'held' }, { word: 'waits' }]
  await server.post({ tasks, requestId: 'second', detached: true })
  await expect.poll(() => answers.asked.has('held')).toBe(true)

  expect((await server.get('/v1/rollouts/0-0')).body).toMatchObject({ id: '0-0', outcome: 'completed' })
  expect((await server.get('/v1/rollouts/1-0')).body).toEqual({ id: '1-0', state: 'running' })
  expect((await server.get('/v1/rollouts/2-0')).body).toEqual({ id: '2-0', state: 'queued' })
  expect((await server.get('/v1/requests/second')).body).toMatchObject({
    id: 'second',
    tasks: 2,
    detached: true,
    rollouts: [
      { id: '1-0', state: 'running' },
      { id: '2-0', state: 'queued' },
    ],
  })

  const listed = async (query: string): Promise<unknown> => {
    const { rollouts } = (await server.get(`/v1/rollouts?${query}`)).body as { rollouts: RecordLine[] }
    return rollouts.map(({ id }) => id)
  }
  expect(await listed('')).toEqual(['2-0', '1-0', '0-0'])
  expect(await listed('state=ended')).toEqual(['0-0'])
  expect(await listed('outcome=completed')).toEqual(['0-0'])
  expect(await listed('outcome=cancelled')).toEqual([])
  expect(await listed('request=second')).toEqual(['2-0', '1-0'])
  const page = (await server.get('/v1/rollouts?limit=2')).body
  expect(page['cursor']).toBe('1-0')
  expect(await listed('limit=2&cursor=1-0')).toEqual(['0-0'])
  answers.release('held', 'waits')
})

test('a detached request is accepted at once, and its results can be read during and after the run', async () => {
  const answers = new HeldAnswers()
  await using server = await TestServer.start(answers.script)
  const accepted = await server.post({ tasks: [{ word: 'a' }, { word: 'b' }], requestId: 'later', detached: true })
  expect(accepted).toMatchObject({ status: 202, body: { request: 'later' } })
  const reading = server.text('/v1/requests/later', { accept: 'application/x-ndjson' })
  await expect.poll(() => answers.asked.size).toBe(2)
  answers.release('a', 'b')
  const ids = (text: string): string[] =>
    text
      .trimEnd()
      .split('\n')
      .map((line) => (JSON.parse(line) as RecordLine).id)
  expect(ids(await reading).toSorted()).toEqual(['0-0', '1-0'])
  expect(ids(await server.text('/v1/requests/later', { accept: 'application/x-ndjson' }))).toEqual(['0-0', '1-0'])
})

test('a result that cannot be written ends the reply with the reason, and cancels nothing', async () => {
  const answers = new HeldAnswers()
  await using server = await TestServer.start(answers.script, { captureTokens: true })
  const { body } = await server.open({ tasks: [{ word: 'slow' }, { word: 'quick' }], include: 'tokens' })
  await expect.poll(() => answers.asked.size).toBe(2)
  await server.service.codec.close()
  answers.release('quick')
  expect(JSON.parse(await body.text())).toMatchObject({ error: { code: 'closed' } })
  answers.release('slow')
  await expect.poll(() => server.service.state('0-0')).toBe('ended')
  expect(server.service.record('0-0')).toMatchObject({ outcome: 'completed' })
})

test('the reply says which row of the request each result belongs to', async () => {
  await using server = await TestServer.start(echo)
  await server.post({ task: { word: 'before' } })
  const { headers, body } = await server.open({ tasks: [{ word: 'a' }, { word: 'b' }] })
  const first = Number(headers['millrace-first-task'])
  const lines = (await body.text())
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as { task: { index: number }; answer: string })
  const rows = new Map(lines.map(({ task, answer }) => [task.index - first, answer]))
  expect(rows).toEqual(
    new Map([
      [0, 'you said a'],
      [1, 'you said b'],
    ]),
  )
})

test('a rollout that was reported as ended can be read at once', async () => {
  await using server = await TestServer.start(echo, { concurrency: 1 })
  for (let task = 0; task < 8; task += 1) {
    await server.post({ task: { word: `${task}` } })
    const { status, body } = await server.get(`/v1/rollouts/${task}-0`)
    expect(status).toBe(200)
    expect(body).toMatchObject({ outcome: 'completed', answer: `you said ${task}` })
  }
})
