import { temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import type { z } from 'zod'
import { serveApi, serveSchemas } from '../../src/serve/index.ts'
import { echo, HeldAnswers, TestServer, wordEnvironment, type Reply } from './_server.ts'

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

test('requests are listed newest first, by state and page by page', async () => {
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

const schemas: Readonly<Record<string, z.ZodType>> = serveSchemas

function expectShape(reply: Reply, operation: (typeof serveApi.operations)[number]): void {
  const shapes = operation.replies[reply.status] ?? operation.errors ?? []
  const names = 'types' in shapes ? (shapes.json ?? []) : shapes
  const problems = names.map((name) => schemas[name]?.safeParse(reply.body).error)
  const where = `${operation.method} ${operation.path} ${reply.status}: ${problems.join('\n')}`
  expect(names.length === 0 || problems.includes(undefined), where).toBe(true)
}

test('openapi.json of a server has every route, and every route answers as it says', async () => {
  await using server = await TestServer.start(echo, { environment: wordEnvironment })
  const document = (await server.get('/openapi.json')).body as unknown as {
    paths: Record<string, Record<string, { parameters?: { name: string; description?: string }[] }>>
    components: { schemas: Record<string, { properties?: Record<string, { description?: string }> }> }
  }
  const described = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`),
  )
  expect(described.toSorted()).toEqual(server.door.routes.toSorted())
  const refs = Array.from(JSON.stringify(document).matchAll(/"\$ref":"([^"]+)"/g), ([, ref = '']) => ref)
  expect(refs.length).toBeGreaterThan(20)
  for (const ref of refs) expect(document.components.schemas).toHaveProperty([ref.replace('#/components/schemas/', '')])
  const parameters = Object.values(document.paths).flatMap((methods) =>
    Object.values(methods).flatMap((each) => each.parameters ?? []),
  )
  const fields = Object.entries(document.components.schemas['RolloutRequest']?.properties ?? {})
  expect(fields.length).toBe(7)
  for (const { name, description } of parameters) expect(description, name).toMatch(/\.$/)
  for (const [name, { description }] of fields) expect(description, name).toMatch(/\.$/)

  await server.post({ task: { word: 'first' }, requestId: '0-0' })
  const bodies: Record<string, unknown> = {
    RolloutRequest: { task: { word: 'again' }, include: 'tokens' },
    ResizeWorkers: { count: 1 },
  }
  for (const operation of serveApi.operations) {
    const { method, path, body } = operation
    const reply = await server.send(method, path.replace('{id}', '0-0'), body && bodies[body])
    expectShape(reply, operation)
    // Workers cannot be changed where there are none.
    if (method === 'GET' || path === '/v1/rollouts') expect(reply.status, path).toBe(200)
    if (operation.errors) expectShape(await server.send(method, `${path.replace('{id}', '9-9')}?no=1`, {}), operation)
  }
  const detached = await server.post({ task: { word: 'later' }, requestId: 'later', detached: true })
  expect(serveSchemas.AcceptedRequest.safeParse(detached.body)).toMatchObject({ success: true })
})
