import { expect, test } from 'vitest'
import { admin, OpenGateway } from '../support/gateway/open-gateway.ts'
import { gatewayEvents, type GatewayEvent, type SessionBounds } from '../../src/gateway/index.ts'
import { ScriptedServer, sendJson, type Handler } from '../support/inference/scripted-server.ts'
import type { LoggedRequest } from '../../src/telemetry/index.ts'
import { asked, TestGateway } from '../support/gateway/test-gateway.ts'

const routes = {
  messages: { path: '/v1/messages/count_tokens', body: { model: 'sim', messages: asked.messages.body.messages } },
  responses: { path: '/v1/responses/input_tokens', body: asked.responses.body },
} as const
const apis = ['messages', 'responses'] as const

const errorText = (message: string): unknown =>
  expect.objectContaining({ message: expect.stringContaining(message) as string })

test.each(apis)('%s: the in-process simulator counts tokens, in a session and outside', async (api) => {
  await using gateway = await TestGateway.start()
  const { path, body } = routes[api]
  const { id, key } = await gateway.startSession({ limits: { maxCost: 1, maxTokens: 1 } })
  const replies = await Promise.all([
    gateway.ask(path, { body }),
    gateway.ask(path, { body, key }),
    gateway.ask(`/sessions/${id}${path}?beta=true`, { body, key }),
    gateway.ask(`/sessions/${id}${path}`, { body: { ...body, stream: true, max_tokens: 0 } }),
  ])
  for (const reply of replies) expect(reply).toMatchObject({ status: 200, body: { input_tokens: 4 } })
  const { body: view } = await gateway.ask(`/v1/sessions/${id}`)
  expect(view).toMatchObject({ state: 'open', interactions: 0, used: { requests: 0, tokens: 0, cost: 0 } })
})

test.each(apis)('%s: a count needs a key and is held to the body limits', async (api) => {
  await using gateway = await TestGateway.start({ bounds: { maxBodyBytes: 4096, maxJsonDepth: 8 } })
  const { path, body } = routes[api]
  const [one, other] = await gateway.startSessions({ groupSize: 2 })
  const refusals = [
    [await gateway.ask(path, { body, key: null }), 401, 'send a key'],
    [await gateway.ask(path, { body, key: 'wrong' }), 401, 'does not know the key'],
    [await gateway.ask(`/sessions/${one?.id}${path}`, { body, key: other?.key ?? '' }), 404, 'no session'],
    [await gateway.ask(path, { body: { ...body, note: 'x'.repeat(5000) } }), 413, '4096 bytes'],
    [await gateway.ask(path, { body: `{"note":${'['.repeat(9)}${']'.repeat(9)}}` }), 400, '8 levels'],
    [await gateway.ask(path, { body: '{"model"' }), 400, 'not JSON'],
  ] as const
  for (const [reply, status, message] of refusals) {
    expect(reply).toMatchObject({ status, body: { error: errorText(message) } })
    expect(reply.body['type']).toBe(api === 'messages' ? 'error' : undefined)
  }
})

test('counts are distinguished from replies in the log and in the metrics', async () => {
  const logged: LoggedRequest[] = []
  await using gateway = await TestGateway.start({ onRequest: (request) => logged.push(request) })
  const { key } = await gateway.startSession()
  const { path, body } = routes.messages
  expect((await gateway.ask(path, { body, key })).status).toBe(200)
  expect((await gateway.ask(path, { body: { ...body, messages: 1 }, key })).status).toBe(400)
  expect(logged).toMatchObject([
    { api: 'messages', model: 'sim', status: 200, outcome: 'counted', error: undefined, inputTokens: undefined },
    { api: 'messages', status: 400, outcome: 'refused' },
  ])
  const { text } = await gateway.ask('/metrics')
  expect(text).toContain('millrace_gateway_requests_total{api="messages",model="sim",status="200",outcome="counted"} 1')
  expect(text).not.toMatch(/^millrace_gateway_samples_total\{/m)
  expect(text).not.toMatch(/^millrace_gateway_request_duration_seconds_count\{api="messages"\} [1-9]/m)
})

function overServer(server: ScriptedServer, bounds: Partial<SessionBounds> = {}): Promise<OpenGateway> {
  const models = [{ name: 'sim', backends: [{ url: server.url, engine: 'vllm' as const }] }]
  return OpenGateway.open({ models, bounds })
}

const count = { api: 'messages', countsOnly: true } as const

test('a count is aborted when its client disconnects', async () => {
  await using server = await ScriptedServer.start(() => {})
  await using open = await overServer(server)
  const outcomes: unknown[] = []
  using _heard = gatewayEvents.subscribe((event: GatewayEvent) => {
    if (event.kind === 'interaction-end') outcomes.push([event.outcome, event.status, event.countsOnly])
  })
  const { caller } = await open.session()
  const { client, done } = open.send(caller, routes.messages.body, count)
  await server.received(1)
  client.leave()
  await done
  await server.requests[0]?.closed
  expect(outcomes).toEqual([['abandoned', 499, true]])
})

test('the limit of running requests includes counts', async () => {
  const answer = Promise.withResolvers<void>()
  await using server = await ScriptedServer.start(async (response) => {
    await answer.promise
    sendJson(response, { count: 4 })
  })
  await using open = await overServer(server, { maxRunning: 1 })
  const first = open.send(admin, routes.messages.body, count)
  await server.received(1)
  const refused = await open.ask(admin, routes.messages.body, count)
  expect(refused).toMatchObject({ status: 529, headers: { 'retry-after': '1' } })
  expect(refused.document).toMatchObject({ type: 'error', error: { type: 'overloaded_error' } })
  expect(open.gateway.status().running).toBe(1)
  answer.resolve()
  await first.done
  expect(first.client).toMatchObject({ status: 200, text: '{"input_tokens":4}' })
  expect(open.gateway.status()).toMatchObject({ running: 0, interactions: { counted: 1, refused: 1, complete: 0 } })
})

const busy: Handler = (response) => {
  response.writeHead(503, { 'retry-after': '60' }).end('{}')
}

test('a drain refuses a count that waits for its next try, and lets running counts end', async () => {
  const answer = Promise.withResolvers<void>()
  await using server = await ScriptedServer.start(async (response) => {
    await answer.promise
    sendJson(response, { count: 4 })
  })
  await using tired = await ScriptedServer.start(busy)
  await using open = await OpenGateway.open({
    models: [server, tired].map(({ url }, index) => ({
      name: `m${index}`,
      backends: [{ url, engine: 'vllm' as const }],
    })),
  })
  const [onWire, waiting] = ['m0', 'm1'].map((model) =>
    open.send(admin, { ...routes.responses.body, model }, { ...count, api: 'responses' }),
  )
  await Promise.all([server.received(1), tired.received(1)])
  const drained = open.gateway.drain()
  await waiting?.done
  expect(waiting?.client).toMatchObject({ status: 503, text: expect.stringContaining('is stopping') as string })
  expect(onWire?.client.isEnded).toBe(false)
  expect((await open.ask(admin, routes.messages.body, count)).status).toBe(503)
  answer.resolve()
  await Promise.all([onWire?.done, drained])
  expect(onWire?.client.document).toEqual({ object: 'response.input_tokens', input_tokens: 4 })
})

test('a count waits for a backend no longer than maxWaitMs', async () => {
  await using server = await ScriptedServer.start(busy)
  await using open = await overServer(server, { maxWaitMs: 20 })
  const refused = await open.ask(admin, routes.messages.body, count)
  expect(refused).toMatchObject({ status: 529, text: expect.stringContaining('no backend of sim') as string })
  expect(Number(refused.headers['retry-after'])).toBeGreaterThan(50)
  expect(server.requests).toHaveLength(1)
})

test('closing a gateway aborts running counts', async () => {
  await using server = await ScriptedServer.start(() => {})
  await using open = await overServer(server)
  const { client, done } = open.send(admin, routes.messages.body, count)
  await server.received(1)
  await open.gateway.close()
  await done
  expect(client.status).toBe(503)
})

test('a count in an API without counting is refused, and the error lists the APIs with counting', async () => {
  await using server = await ScriptedServer.start(() => {})
  await using open = await overServer(server)
  const refused = await open.ask(admin, asked.chat.body, { countsOnly: true })
  expect(refused).toMatchObject({ status: 400, text: expect.stringContaining('messages') as string })
})
