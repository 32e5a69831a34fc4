import { once } from 'node:events'
import { get, type IncomingMessage } from 'node:http'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { expect, test } from 'vitest'
import { SimulatorServer } from '../../src/simulator/index.ts'
import { OpenApi, type Operation } from '../support/serve/openapi.ts'
import { anthropicErrorSchema, openAiErrorSchema, vendorShapes } from '../support/serve/vendor-schemas.ts'
import { readJsonRows } from '../support/gateway/read-rows.ts'
import { adminKey, apis, asked, TestGateway, type Reply } from '../support/gateway/test-gateway.ts'

async function apiOf(gateway: TestGateway): Promise<OpenApi> {
  return new OpenApi((await gateway.ask('/openapi.json')).body)
}

/** A reply has the shape that OpenAPI, or the vendor of its API, gives it. */
function expectShape(reply: Reply, operation: Operation, api: OpenApi): void {
  const where = `${operation.method} ${operation.path}: ${reply.status} ${reply.text}`
  const vendor = vendorShapes(operation.path)
  expect(operation.externalDocs !== undefined, where).toBe(vendor !== undefined)
  if (!vendor) expect(api.problem(operation, reply), where).toBeUndefined()
  else expect((reply.status < 300 ? vendor.reply : vendor.error).safeParse(reply.body).error, where).toBeUndefined()
}

test('every route answers as openapi.json describes, in a session and outside', async () => {
  // One of the routes is an API of SGLang alone.
  await using sglang = await SimulatorServer.start({ imitate: 'sglang' })
  const backends = [{ url: sglang.url, engine: 'sglang' as const }]
  await using registered = await SimulatorServer.start({ models: 'registered' })
  await using gateway = await TestGateway.start({ models: [{ name: 'sim', backends }] })
  const [session] = await gateway.startSessions({ taskId: 'a task', groupSize: 2, metadata: { try: 1 } })
  const { body } = await gateway.ask(`/sessions/${session?.id}/v1/chat/completions`, { body: asked.chat.body })
  const bodies: Readonly<Record<string, unknown>> = {
    '/v1/chat/completions': asked.chat.body,
    '/v1/responses': asked.responses.body,
    '/v1/messages': asked.messages.body,
    '/v1/responses/input_tokens': asked.responses.body,
    '/v1/messages/count_tokens': { model: 'sim', messages: asked.messages.body.messages },
    '/generate': { text: 'hello' },
    '/v1/sessions': { limits: { maxTokens: 10 } },
    '/v1/sessions/{id}/rewards': { reward: 0.5, interactionId: body['id'] },
    '/v1/backends/version': { version: '1' },
    '/v1/backends/{backend}/version': { version: '2' },
    '/v1/backends': { url: registered.url },
    '/v1/keys': { tenant: 'another' },
  }
  const api = await apiOf(gateway)
  let key = ''
  for (const operation of api.operations) {
    // What ends a session comes last.
    if (operation.path.endsWith('/end')) continue
    const backend = new URL(sglang.url).host
    const filled = operation.path.replace('{id}', session?.id ?? '').replace('{model}', 'sim')
    const removed = operation.method === 'DELETE' ? new URL(registered.url).host : backend
    const path = filled.replace('{backend}', encodeURIComponent(removed)).replace('{key}', key)
    const sent = operation.method === 'POST' && { body: bodies[operation.path.replace(/^\/sessions\/\{id\}/, '')] }
    const reply = await gateway.ask(path, { method: operation.method, ...sent })
    expect(reply.status, `${path}: ${reply.text}`).toBeLessThan(300)
    expectShape(reply, operation, api)
    if (operation.path === '/v1/keys' && operation.method === 'POST') key = String(reply.body['id'])
    expect(reply.headers['x-request-id']).toMatch(/^req_\w+$/)
    if (operation.security.length === 0) continue
    const refused = await gateway.ask(path, { method: operation.method, key: 'wrong', ...sent })
    expect(refused.status).toBe(401)
    expectShape(refused, operation, api)
  }
  const ended = await gateway.ask(`/v1/sessions/${session?.id}/end`, { method: 'POST' })
  expectShape(ended, api.operation('POST', '/v1/sessions/{id}/end'), api)
  expect(ended.body).toMatchObject({ state: 'ended', taskId: 'a task', interactions: 5, alarms: [] })
})

test('openapi.json has every route, and all its references resolve', async () => {
  await using gateway = await TestGateway.start()
  const { document, operations, references } = await apiOf(gateway)
  // The name of a model may have slashes in it, which OpenAPI does not support.
  const routes = gateway.server.routes.map((route) => route.replace('/models/*', '/models/{model}'))
  expect(operations.map(({ method, path }) => `${method} ${path}`).toSorted()).toEqual(routes.toSorted())
  const schemas = Object.keys(document.components.schemas)
  expect(new Set(references)).toEqual(new Set(schemas))
  expect(schemas).toContain('RewardedSession')
  const { paths } = document
  expect(paths['/v1/sessions']?.['post']).toMatchObject({ requestBody: { required: false } })
  expect(paths['/v1/sessions/{id}/rewards']?.['post']).toMatchObject({ requestBody: { required: true } })
  expect(paths['/v1/chat/completions']?.['post']?.externalDocs?.url).toContain('platform.openai.com')
  expect(paths['/v1/export']?.['get']).toMatchObject({
    responses: { 200: { content: { 'application/x-ndjson': {}, 'application/octet-stream': {} } } },
  })
})

test('openapi.json describes every field of the session API', async () => {
  await using gateway = await TestGateway.start()
  const { document, parameters } = await apiOf(gateway)
  const { StartSessions, Reward } = document.components.schemas
  const fields = [StartSessions, Reward].flatMap((schema) => Object.entries(schema?.properties ?? {}))
  const described = [...fields, ...parameters.map((each) => [each.name, each] as const)]
  expect(described.length).toBeGreaterThan(20)
  for (const [name, { description }] of described) expect(description, name).toMatch(/^[A-Z].*\.$/)
})

test.each(apis)('%s answers as a whole and as a stream', async (api) => {
  await using gateway = await TestGateway.start()
  const { path, body } = asked[api]
  const whole = await gateway.ask(path, { body })
  expect(whole.status).toBe(200)
  expect(vendorShapes(path)?.reply.safeParse(whole.body).error).toBeUndefined()
  const stream = await gateway.ask(path, { body: { ...body, stream: true } })
  expect(stream.headers).toMatchObject({
    'content-type': 'text/event-stream; charset=utf-8',
    'cache-control': 'no-cache',
    'x-accel-buffering': 'no',
  })
  expect(stream.text.match(/^data: /gm)?.length).toBeGreaterThan(2)
})

test('models are listed in the format of the API of the client', async () => {
  await using gateway = await TestGateway.start({
    aliases: { 'gpt-4o': 'sim' },
    facts: { sim: { contextLength: 4096 } },
  })
  const openAi = await gateway.ask('/v1/models')
  expect(openAi.body).toMatchObject({
    object: 'list',
    data: [
      { id: 'sim', object: 'model', max_model_len: 4096 },
      { id: 'gpt-4o', object: 'model' },
    ],
  })
  const anthropic = await gateway.ask('/v1/models', { headers: { 'anthropic-version': '2023-06-01' } })
  expect(anthropic.body).toMatchObject({
    data: [{ type: 'model', id: 'sim', display_name: 'sim' }, { id: 'gpt-4o' }],
    has_more: false,
    first_id: 'sim',
    last_id: 'gpt-4o',
  })
  expect((await gateway.ask('/v1/chat/completions', { body: { ...asked.chat.body, model: 'gpt-4o' } })).status).toBe(
    200,
  )
})

test.each(['org/model', 'org%2Fmodel'])('a model is found by its name, written as %s', async (path) => {
  const simulator = { simulator: {} }
  await using gateway = await TestGateway.start({ models: [{ name: 'org/model', ...simulator }] })
  const { id, key } = await gateway.startSession()
  for (const base of ['', `/sessions/${id}`]) {
    expect((await gateway.ask(`${base}/v1/models/${path}`, { key })).body).toMatchObject({ id: 'org/model' })
  }
})

test('the alias * answers requests for any single model, but is not listed', async () => {
  await using gateway = await TestGateway.start({
    aliases: { '*': 'sim' },
    facts: { sim: { contextLength: 4096 } },
  })
  const openAi = await gateway.ask('/v1/models/gpt-4o')
  expect(openAi).toMatchObject({ status: 200, body: { id: 'gpt-4o', object: 'model', max_model_len: 4096 } })
  const headers = { 'anthropic-version': '2023-06-01' }
  const anthropic = await gateway.ask('/v1/models/org/any', { headers })
  expect(anthropic).toMatchObject({ status: 200, body: { id: 'org/any', type: 'model', max_input_tokens: 4096 } })
  expect((await gateway.ask('/v1/models')).body['data']).toMatchObject([{ id: 'sim' }])
})

test('listing models below a session does not read its messages', async () => {
  await using gateway = await TestGateway.start()
  const { id, key } = await gateway.startSession()
  await gateway.ask(asked.chat.path, { body: asked.chat.body, key })
  await gateway.ask(`/v1/sessions/${id}/end`, { method: 'POST' })
  {
    using database = new DatabaseSync(join(gateway.root, 'gateway', 'journal.sqlite'), { timeout: 10_000 })
    expect(database.prepare(`UPDATE node SET message = '{' WHERE rollout = ? AND seq = 0`).run(id).changes).toBe(1)
  }
  const listed = async (): Promise<unknown> => (await gateway.ask('/v1/sessions')).body['sessions']
  for (const path of ['', '/sim'])
    expect((await gateway.ask(`/sessions/${id}/v1/models${path}`, { key })).status).toBe(200)
  expect(await listed()).toMatchObject([{ id }])
  expect(await listed()).not.toMatchObject([{ damage: expect.anything() as unknown }])
  // A list of sessions shows damage that somebody came upon.
  await gateway.ask(`/v1/sessions/${id}`)
  expect(await listed()).toMatchObject([{ damage: expect.anything() as unknown }])
})

test('invalid requests for models are refused with an error of the API of the client', async () => {
  await using gateway = await TestGateway.start()
  const anthropic = { 'anthropic-version': '2023-06-01' }
  const asks = [
    ['/v1/models', 'wrong', 401],
    ['/v1/models/nobody', undefined, 404],
    ['/sessions/ses_nobody/v1/models', undefined, 404],
    ['/sessions/ses_nobody/v1/models/sim', undefined, 404],
  ] as const
  for (const [path, key, status] of asks) {
    for (const [headers, shape] of [
      [{}, openAiErrorSchema],
      [anthropic, anthropicErrorSchema],
    ] as const) {
      const reply = await gateway.ask(path, { headers, ...(key && { key }) })
      expect(reply.status, path).toBe(status)
      expect(shape.safeParse(reply.body), reply.text).toMatchObject({ success: true })
    }
  }
  const { id, key } = await gateway.startSession()
  expect((await gateway.ask(`/sessions/${id}/v1/models`, { key })).status).toBe(200)
})

test('an unknown route or an invalid request is refused with an error', async () => {
  await using gateway = await TestGateway.start()
  expect(await gateway.ask('/v1/nothing', { headers: { 'x-request-id': 'mine' } })).toMatchObject({
    status: 404,
    headers: { 'x-request-id': 'mine' },
    body: { error: { code: 'not_found' } },
  })
  expect(await gateway.ask('/v1/sessions', { body: { groupsize: 2 } })).toMatchObject({
    status: 400,
    body: { error: { code: 'usage', message: expect.stringContaining('groupsize') as string } },
  })
  expect(await gateway.ask('/v1/sessions', { body: '{"groupSize":' })).toMatchObject({
    status: 400,
    body: { error: { code: 'usage', message: expect.stringContaining('not JSON') as string } },
  })
  expect((await gateway.ask('/v1/sessions?limit=0')).status).toBe(400)
  expect((await gateway.ask('/v1/export?rows=all')).status).toBe(400)
  expect((await gateway.ask('/v1/sessions/ses_nobody')).status).toBe(404)
  for (const api of apis) {
    const { path } = asked[api]
    const reply = await gateway.ask(path, { body: 'nothing like JSON' })
    expect(reply.status, reply.text).toBe(400)
    expect(vendorShapes(path)?.error.safeParse(reply.body).error).toBeUndefined()
  }
})

test('sessions are listed in pages, by group and by state', async () => {
  await using gateway = await TestGateway.start()
  const sessions = [
    ...(await gateway.startSessions({ groupSize: 3 })),
    ...(await gateway.startSessions({ groupSize: 2, groupId: 'pair' })),
  ]
  await gateway.ask(`/v1/sessions/${sessions[0]?.id}/end`, { method: 'POST' })
  const list = async (query: string): Promise<{ ids: unknown[]; after: unknown }> => {
    const { body } = await gateway.ask(`/v1/sessions?${query}`)
    return { ids: (body['sessions'] as { id: string }[]).map(({ id }) => id), after: body['after'] }
  }
  const ids = sessions.map(({ id }) => id)
  const first = await list('limit=2')
  expect(first).toEqual({ ids: ids.slice(0, 2), after: ids[1] })
  expect(await list(`limit=10&after=${ids[1]}`)).toEqual({ ids: ids.slice(2), after: null })
  expect(await list('group=pair')).toEqual({ ids: ids.slice(3), after: null })
  expect(await list('state=ended')).toEqual({ ids: ids.slice(0, 1), after: null })
})

test('an export has the requested rows, format and sessions', async () => {
  await using gateway = await TestGateway.start()
  const { id, key } = await gateway.startSession({ groupId: 'mine' })
  const { body } = await gateway.ask('/v1/chat/completions', { body: asked.chat.body, key })
  await gateway.ask(`/v1/sessions/${id}/rewards`, { body: { reward: 1 } })
  const lines = await gateway.ask('/v1/export?group=mine')
  expect(lines.headers['content-type']).toContain('application/x-ndjson')
  const rows = lines.text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Record<string, unknown>)
  expect(rows).toMatchObject([
    { session: id, interaction: body['id'], reward: 1 },
    { kind: 'end', rows: 1 },
  ])
  const binary = await gateway.ask(`/v1/export?session=${id}&format=binary&rows=merged&discount=0.5`)
  expect(binary.headers['content-type']).toContain('application/octet-stream')
  expect(binary.text.length).toBeGreaterThan(100)
  const side = { ...asked.chat.body, messages: [{ role: 'system', content: 'a much longer prompt for a title' }] }
  await gateway.ask('/v1/chat/completions', { body: side, key })
  const worths = async (query: string): Promise<unknown[]> => {
    const found = readJsonRows(Buffer.from((await gateway.ask(`/v1/export?session=${id}${query}`)).text))
    return found.filter(({ kind }) => kind !== 'end').map((row) => [row['main'], row['reward']])
  }
  expect(await worths('&mainTree=first')).toEqual([
    [true, 1],
    [false, null],
  ])
  expect(await worths('&mainTree=first&trees=main')).toEqual([[true, 1]])
  const empty = await gateway.ask('/v1/export?discount=')
  expect(empty).toMatchObject({
    status: 400,
    body: { error: { message: expect.stringContaining('discount') as string } },
  })
  const missing = await gateway.ask('/v1/export?session=ses_nobody')
  expect(missing.status).toBe(404)
})

test('an invalid query is refused, and the error repeats its value', async () => {
  await using gateway = await TestGateway.start()
  for (const [path, said] of [
    ['/v1/export?rows=merge', 'rows: expected one of "interactions"|"merged", got "merge" (did you mean "merged"?)'],
    ['/v1/export?discount=half', 'discount: expected number, got "half"'],
    ['/v1/sessions?limit=all', 'limit: expected number, got "all"'],
  ] as const) {
    const { status, body } = await gateway.ask(path)
    const error = { code: 'usage', message: `the query does not fit: ${said}` }
    expect({ status, body }).toEqual({ status: 400, body: { error } })
  }
})

test('an unsupported method is refused with the allowed methods, in an error of its API', async () => {
  await using gateway = await TestGateway.start()
  const api = await apiOf(gateway)
  for (const { path: pattern } of api.operations) {
    const path = pattern
      .replace('{id}', 'ses_nobody')
      .replace('{model}', 'org/model')
      .replace('{backend}', 'gpu-1')
      .replace('{key}', 'key_1')
    // What stands for a backend may be the name of an order, too.
    const name = path.slice(path.lastIndexOf('/') + 1)
    const isAt = (each: string): boolean => each === pattern || each.replace(/\{backend\}$/, name) === path
    const taken = api.operations.filter((each) => isAt(each.path))
    const reply = await gateway.ask(`${path}?limit=1`, { method: 'PUT', body: asked.chat.body })
    expect(reply.status, path).toBe(405)
    const methods = taken.flatMap(({ method }) => (method === 'GET' ? ['GET', 'HEAD'] : [method]))
    expect(String(reply.headers['allow']).split(', ').toSorted()).toEqual(methods.toSorted())
    expect(reply.text).toContain(
      `there is no PUT ${path}; it takes ${taken
        .map(({ method }) => method)
        .toSorted()
        .join(' and ')}`,
    )
    if (taken[0] && taken[0].security.length > 0) expectShape(reply, taken[0], api)
    expect(reply.headers['x-request-id']).toMatch(/^req_\w+$/)
  }
  const headers = { 'anthropic-version': '2023-06-01' }
  for (const path of ['/v1/models', '/v1/sessions']) {
    const { status, body } = await gateway.ask(path, { method: 'DELETE', headers })
    expect([status, anthropicErrorSchema.safeParse(body).success], path).toEqual([405, true])
  }
})

test('a WebSocket request is refused with the advice to send plain requests', async () => {
  await using gateway = await TestGateway.start()
  // Node's own client: undici's has no such request.
  const [response] = (await once(
    get(`${gateway.url}/v1/responses`, { headers: { connection: 'Upgrade', upgrade: 'websocket' } }),
    'response',
  )) as [IncomingMessage]
  const text = Buffer.concat(await response.toArray()).toString()
  expect(response.statusCode).toBe(426)
  expect(JSON.parse(text)).toMatchObject({
    error: { message: '/v1/responses does not speak WebSocket; send a POST request, streamed or not' },
  })
})

test('an Anthropic client gets an unknown route as an Anthropic error', async () => {
  await using gateway = await TestGateway.start()
  const body = { model: 'sim', messages: [{ role: 'user', content: 'hello' }] }
  const headers = { 'anthropic-version': '2023-06-01' }
  expect(await gateway.ask('/v1/messages/batches', { body, headers })).toMatchObject({
    status: 404,
    body: {
      type: 'error',
      error: { type: 'not_found_error', message: expect.stringContaining('/v1/messages/batches') as string },
    },
  })
})

test('a list after an unknown session id is refused', async () => {
  await using gateway = await TestGateway.start()
  const [first, second] = await gateway.startSessions({ groupSize: 2 })
  const rest = await gateway.ask(`/v1/sessions?after=${first?.id}`)
  expect(rest).toMatchObject({ status: 200, body: { sessions: [{ id: second?.id }] } })
  expect(await gateway.ask('/v1/sessions?after=ses_nobody')).toMatchObject({
    status: 400,
    body: { error: { code: 'usage', message: expect.stringContaining('ses_nobody') as string } },
  })
})

test('every route refuses a body that is not UTF-8, and records nothing', async () => {
  await using gateway = await TestGateway.start()
  const { id, key } = await gateway.startSession()
  const send = async (path: string, body: string, bearer: string): Promise<readonly [number, string]> => {
    // One byte for the ï: Latin-1.
    const sent = Buffer.from(body, 'latin1')
    const headers = { 'content-type': 'application/json', authorization: `Bearer ${bearer}` }
    const response = await fetch(`${gateway.url}${path}`, { method: 'POST', headers, body: sent })
    return [response.status, await response.text()]
  }
  const refusal = [400, expect.stringMatching(/not UTF-8 \(byte \d+ begins no character\)/)]
  for (const api of apis) {
    const { path, body } = asked[api]
    const text = JSON.stringify(body).replace('hello', 'na\u00efve')
    expect(await send(path, text, key), api).toEqual(refusal)
    expect(await send(path, text, adminKey), api).toEqual(refusal)
  }
  expect(await send('/v1/sessions', '{"taskId":"na\u00efve"}', adminKey)).toEqual(refusal)
  expect((await gateway.ask(`/v1/sessions/${id}`)).body).toMatchObject({ interactions: 0 })
})
