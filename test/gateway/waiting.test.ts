import { SimulatorServer, type LoggedRequest } from 'millrace'
import { temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { activeResources, leftSince } from '../support/kit/active-resources.ts'
import { OpenGateway } from '../support/gateway/open-gateway.ts'
import { authorized, startGateway } from '../support/gateway/gateway-process.ts'
import { asked, TestGateway } from '../support/gateway/test-gateway.ts'
import { LateServer } from '../support/inference/late-server.ts'
import { ScriptedServer } from '../support/inference/scripted-server.ts'

const bodies = {
  chat: { model: 'm', messages: [{ role: 'user', content: 'hello' }] },
  responses: { model: 'm', input: 'hello' },
  messages: { model: 'm', max_tokens: 10, messages: [{ role: 'user', content: 'hello' }] },
} as const

/** Nobody listens there. */
const nowhere = { name: 'm', backends: [{ url: 'http://127.0.0.1:9/v1' }] }

test.each([
  { api: 'chat', status: 503 },
  { api: 'responses', status: 503 },
  { api: 'messages', status: 529 },
] as const)('a request in $api without an available backend is refused in time', async ({ api, status }) => {
  const before = activeResources()
  {
    await using open = await OpenGateway.open({ models: [nowhere], bounds: { maxWaitMs: 30 } })
    const { id, caller } = await open.session()
    const refused = await open.ask(caller, bodies[api], { api })
    expect(refused).toMatchObject({ status, headers: { 'retry-after': '1' } })
    expect(refused.text).toContain('no backend of m could take the request')
    expect(open.gateway.status().interactions).toMatchObject({ failed: 1, abandoned: 0 })
    // It was never sampled, so it counts for nothing.
    expect((await open.gateway.session(caller, id)).used.requests).toBe(0)
  }
  expect(await leftSince(before)).toEqual([])
})

test('the wait limit is an option of the gateway and a flag', async () => {
  const { path, body } = asked.chat
  const refusal = { status: 503, body: { error: { code: 'overloaded' } } }
  await using gateway = await TestGateway.start({ models: [{ ...nowhere, name: 'sim' }], bounds: { maxWaitMs: 30 } })
  expect(await gateway.ask(path, { body })).toMatchObject({ ...refusal, headers: { 'retry-after': '1' } })
  await using runs = await temporaryRuns()
  const flags = ['--backend', 'http://127.0.0.1:9/v1', '-m', 'sim', '--max-wait', '0.03']
  await using started = await startGateway(runs.root, ...flags)
  const reply = await fetch(started.url + path, { method: 'POST', headers: authorized(), body: JSON.stringify(body) })
  expect({ status: reply.status, body: await reply.json() }).toMatchObject(refusal)
})

test('a request that waited too long is refused with the retry-after time of the backend', async () => {
  await using server = await ScriptedServer.start((response) => {
    response.writeHead(429, { 'content-type': 'application/json', 'retry-after': '30' })
    response.end('{"error":{"message":"slow down"}}')
  })
  await using open = await OpenGateway.open({
    models: [{ name: 'm', backends: [{ url: server.url }] }],
    bounds: { maxWaitMs: 30 },
  })
  const { caller } = await open.session()
  const refused = await open.ask(caller, bodies.chat)
  expect(refused.status).toBe(503)
  expect(Number(refused.headers['retry-after'])).toBeGreaterThan(20)
})

test('a backend that always answers 429 is waited for until the limit of its model, then 429 is returned', async () => {
  await using server = await ScriptedServer.start((response) => {
    response.writeHead(429, { 'content-type': 'application/json', 'retry-after': '1' })
    response.end('{"error":{"message":"slow down"}}')
  })
  const backends = [{ url: server.url }]
  await using open = await OpenGateway.open({
    models: [
      { name: 'm', maxTries: 2, maxRateLimitWaitMs: 40, backends },
      { name: 'other', maxWaitMs: 40, backends },
    ],
  })
  const { caller } = await open.session()
  // Two failures park the backend: further requests wait without a try.
  for (const _request of [1, 2, 3]) {
    const refused = await open.ask(caller, bodies.chat)
    expect(refused).toMatchObject({ status: 429, headers: { 'retry-after': '1' } })
    expect(refused.text).toContain('have refused requests with 429')
  }
  expect(await open.ask(caller, bodies.messages, { api: 'messages' })).toMatchObject({ status: 429 })
  expect(await open.ask(caller, { ...bodies.chat, model: 'other' })).toMatchObject({ status: 503 })
})

test('the log has the reason of a failed wait, and the client does not see backend addresses', async () => {
  await using server = await ScriptedServer.start((response) => {
    response.writeHead(503, { 'content-type': 'application/json', 'retry-after': '30' })
    response.end('{"error":{"message":"loading weights"}}')
  })
  const logged: LoggedRequest[] = []
  await using gateway = await TestGateway.start({
    models: [{ name: 'sim', maxTries: 2, backends: [{ url: server.url }] }],
    bounds: { maxWaitMs: 100 },
    onRequest: (request) => logged.push(request),
  })
  const ask = () => gateway.ask(asked.chat.path, { body: asked.chat.body })
  // Two failures park the backend, so the third request is never sent.
  const replies = [...(await Promise.all([ask(), ask()])), await ask()]
  for (const { status, text } of replies) {
    expect(status).toBe(503)
    expect(text).not.toMatch(/loading weights|127\.0\.0\.1/)
  }
  expect(logged.map(({ tries }) => tries)).toEqual([1, 1, 0])
  const cause = { code: 'model_overloaded', message: expect.stringContaining('loading weights') as string }
  for (const request of logged) expect(request.error).toMatchObject({ code: 'model_overloaded', cause })
})

test('time on the wire does not count as waiting', async () => {
  const answer = Promise.withResolvers<void>()
  await using server = await ScriptedServer.start(async (response) => {
    await answer.promise
    response.writeHead(200, { 'content-type': 'application/json' })
    response.end(
      JSON.stringify({ id: 'c', choices: [{ index: 0, finish_reason: 'stop', message: { content: 'hi' } }] }),
    )
  })
  await using open = await OpenGateway.open({
    models: [{ name: 'm', maxConcurrency: 1, backends: [{ url: server.url }] }],
    bounds: { maxWaitMs: 20 },
  })
  const { caller } = await open.session()
  const first = open.send(caller, bodies.chat)
  await server.received(1)
  // The second one waits for the first one's permit, and longer than it may.
  expect(await open.ask(caller, bodies.chat)).toMatchObject({ status: 503 })
  expect(first.client.isEnded).toBe(false)
  answer.resolve()
  await first.done
  expect(first.client.status).toBe(200)
})

test('a drain refuses waiting requests at once, and lets running ones end', async () => {
  const answer = Promise.withResolvers<void>()
  await using server = await ScriptedServer.start(async (response) => {
    await answer.promise
    response.writeHead(200, { 'content-type': 'application/json' })
    response.end(
      JSON.stringify({ id: 'c', choices: [{ index: 0, finish_reason: 'stop', message: { content: 'hi' } }] }),
    )
  })
  await using open = await OpenGateway.open({
    models: [
      { name: 'm', maxConcurrency: 1, backends: [{ url: server.url }] },
      { ...nowhere, name: 'dead' },
    ],
  })
  const { caller } = await open.session()
  const onWire = open.send(caller, bodies.chat)
  await server.received(1)
  const queued = open.send(caller, bodies.chat)
  const parked = open.send(caller, { ...bodies.chat, model: 'dead' })
  await expect
    .poll(() => open.gateway.status().models.map(({ waiting, parked: still }) => waiting + still))
    .toEqual([1, 1])
  const drained = open.gateway.drain()
  await Promise.all([queued.done, parked.done])
  expect(queued.client).toMatchObject({ status: 503, headers: { 'retry-after': '1' } })
  expect(parked.client.text).toContain('is stopping')
  expect(onWire.client.isEnded).toBe(false)
  answer.resolve()
  await Promise.all([onWire.done, drained])
  expect(onWire.client.status).toBe(200)
})

test('the log reports when a backend is gone, why, and when it is back', async () => {
  await using runs = await temporaryRuns()
  await using address = await LateServer.start()
  const simulator = await SimulatorServer.start({})
  address.put(simulator.url)
  await using gateway = await startGateway(runs.root, '--backend', address.url, '-m', 'sim')
  await simulator.close()
  const ask = async (): Promise<number> => {
    const body = JSON.stringify({ ...bodies.chat, model: 'sim' })
    const reply = await fetch(`${gateway.url}/v1/chat/completions`, { method: 'POST', headers: authorized(), body })
    await reply.text()
    return reply.status
  }
  const replies = Promise.all(Array.from({ length: 5 }, ask))
  await gateway.running.shows('stderr', 'requests wait for a backend')
  await using again = await SimulatorServer.start({})
  address.put(again.url)
  expect(await replies).toEqual([200, 200, 200, 200, 200])
  gateway.running.process.kill('SIGTERM')
  const { stderr } = await gateway.running.ended
  const lines = stderr.split('\n').filter((line) => /requests wait for|is back/.test(line))
  const { host } = new URL(address.url)
  expect(lines.map((line) => JSON.parse(line) as unknown)).toMatchObject([
    {
      level: 'warn',
      model: 'sim',
      why: expect.stringMatching(
        `^${host} failed 5 times in a row: .* The last failure: .* cannot be reached`,
      ) as string,
    },
    { level: 'info', model: 'sim', why: expect.stringMatching(`^${host} answers again`) as string },
  ])
})

test('SIGTERM ends the process although no backend answers', async () => {
  await using runs = await temporaryRuns()
  const simulator = await SimulatorServer.start({})
  await using gateway = await startGateway(runs.root, '--backend', simulator.url, '-m', 'sim')
  await simulator.close()
  const waiting = fetch(`${gateway.url}/v1/messages`, {
    method: 'POST',
    headers: authorized(),
    body: JSON.stringify({ ...bodies.messages, model: 'sim' }),
  })
  // One try has failed, so it waits for the next.
  const metrics = async (): Promise<string> =>
    await (await fetch(`${gateway.url}/metrics`, { headers: authorized() })).text()
  await expect.poll(metrics).toMatch(/^millrace_model_failed_tries_total.* [1-9]/m)
  gateway.running.process.kill('SIGTERM')
  const reply = await waiting
  expect(reply.status).toBe(503)
  expect(reply.headers.get('retry-after')).toBe('1')
  expect(await gateway.running.ended).toMatchObject({ code: 0 })
})
