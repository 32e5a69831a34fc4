import { temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { OpenApi } from '../support/serve/openapi.ts'
import { echo, HeldAnswers, TestServer, wordEnvironment } from '../support/serve/test-server.ts'

test('a request counts its rollouts by state and outcome, also after a restart', async () => {
  await using runs = await temporaryRuns()
  const tasks = ['ends', 'is cancelled', 'runs', 'waits'].map((word) => ({ word }))
  const run = { root: runs.root, name: 'served' }
  {
    const answers = new HeldAnswers()
    await using server = await TestServer.start(answers.script, { run, concurrency: 2 })
    answers.release('ends')
    await server.post({ tasks, requestId: 'all', detached: true })
    await expect.poll(() => answers.asked.has('runs')).toBe(true)
    await server.delete('/v1/rollouts/1-0')
    await expect.poll(() => answers.asked.has('waits')).toBe(true)
    await server.post({ task: { word: 'later' }, requestId: 'later', detached: true })
    const { body } = await server.get('/v1/requests/all')
    expect(body).toMatchObject({
      state: 'running',
      states: { queued: 0, running: 2, ended: 2 },
      outcomes: { completed: 1, cancelled: 1 },
    })
    expect(body['rollouts']).toHaveLength(4)
    expect((await server.get('/v1/requests/later')).body).toMatchObject({
      state: 'queued',
      states: { queued: 1, running: 0, ended: 0 },
      outcomes: {},
    })
  }
  const answers = new HeldAnswers()
  await using server = await TestServer.start(answers.script, { run, concurrency: 1 })
  expect((await server.get('/v1/requests/all')).body).toMatchObject({
    state: 'running',
    states: { ended: 2 },
    outcomes: { completed: 1, cancelled: 1 },
  })
  answers.release('runs', 'waits', 'later')
  await server.text('/v1/requests/all', { accept: 'application/x-ndjson' })
  expect((await server.get('/v1/requests/all')).body).toMatchObject({
    state: 'ended',
    states: { queued: 0, running: 0, ended: 4 },
    outcomes: { completed: 3, cancelled: 1 },
  })
})

test('requests are listed newest first, by state and in pages', async () => {
  const answers = new HeldAnswers()
  await using server = await TestServer.start(answers.script, { concurrency: 1 })
  answers.release('a', 'b')
  for (const word of ['a', 'b']) await server.post({ task: { word }, requestId: word })
  await server.post({ tasks: [{ word: 'held' }, { word: 'next' }], requestId: 'held', detached: true })
  await expect.poll(() => answers.asked.has('held')).toBe(true)
  await server.post({ task: { word: 'last' }, requestId: 'last', detached: true })

  const list = async (query: string): Promise<{ ids: string[]; cursor: unknown }> => {
    const { body } = await server.get(`/v1/requests?${query}`)
    return { ids: (body['requests'] as { id: string }[]).map(({ id }) => id), cursor: body['cursor'] }
  }
  expect((await list('')).ids).toEqual(['last', 'held', 'b', 'a'])
  expect((await list('state=queued')).ids).toEqual(['last'])
  expect((await list('state=running')).ids).toEqual(['held'])
  expect((await list('state=ended')).ids).toEqual(['b', 'a'])
  const first = await list('limit=3')
  expect(first.ids).toEqual(['last', 'held', 'b'])
  expect(await list(`limit=3&cursor=${String(first.cursor)}`)).toEqual({ ids: ['a'], cursor: undefined })
  expect(await server.get('/v1/requests?cursor=1-0')).toMatchObject({ status: 400, body: { error: { code: 'usage' } } })
  expect(await server.get('/v1/requests?limit=1001')).toMatchObject({ status: 400 })
  answers.release('held', 'next', 'last')
})

test('openapi.json of a server has every route, and every route answers as described', async () => {
  await using server = await TestServer.start(echo, { environment: wordEnvironment })
  const api = new OpenApi((await server.get('/openapi.json')).body)
  const { document, operations, references, parameters } = api
  expect(operations.map(({ method, path }) => `${method} ${path}`).toSorted()).toEqual(
    server.httpServer.routes.toSorted(),
  )
  expect(new Set(references)).toEqual(new Set(Object.keys(document.components.schemas)))
  const fields = Object.entries(document.components.schemas['RolloutRequest']?.properties ?? {})
  expect(fields.length).toBe(10)
  for (const { name, description } of parameters) expect(description, name).toMatch(/\.$/)
  for (const [name, { description }] of fields) expect(description, name).toMatch(/\.$/)

  await server.post({ task: { word: 'first' }, requestId: '0-0' })
  const bodies: Record<string, unknown> = {
    '/v1/rollouts': { task: { word: 'again' }, include: 'tokens' },
    '/v1/workers': { count: 1 },
  }
  for (const operation of operations) {
    const { method, path } = operation
    const of = (id: string): string => path.replace('{id}', id).replace('{agent}', 'words')
    const native = path.replace('/agents/{agent}', '')
    const reply = await server.send(method, of('0-0'), operation.requestBody && bodies[native])
    expect(api.problem(operation, reply), `${method} ${path} ${reply.status}`).toBeUndefined()
    // Workers cannot be changed where there are none.
    if (method === 'GET' || native === '/v1/rollouts') expect(reply.status, path).toBe(200)
    if (operation.security.length === 0) continue
    const refused = await server.send(method, `${of('9-9')}?no=1`, {})
    expect(api.problem(operation, refused), `${method} ${path} ${refused.status}`).toBeUndefined()
  }
  const detached = await server.post({ task: { word: 'later' }, requestId: 'later', detached: true })
  expect(api.problem(api.operation('POST', '/v1/rollouts'), detached)).toBeUndefined()
})
