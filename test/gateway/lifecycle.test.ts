import { evaluate, MillraceError, SimulatorServer } from 'millrace'
import { temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { activeResources, leftSince } from '../support/kit/active-resources.ts'
import { findModels } from '../../src/serve/index.ts'
import { readRunFile, runFolder } from '../../src/store/index.ts'
import { asked, TestGateway } from '../support/gateway/test-gateway.ts'

test('closing twice, during a request or after a drain leaves no resources open', async () => {
  const before = activeResources()
  {
    await using simulator = await SimulatorServer.start({ ttftMs: 60_000 })
    await using gateway = await TestGateway.start({ models: [{ name: 'sim', backends: [{ url: simulator.url }] }] })
    const { key } = await gateway.startSession()
    const waiting = gateway.ask(asked.messages.path, { body: asked.messages.body, key })
    await expect.poll(() => simulator.stats.inFlight).toBe(1)
    const [first, second] = [gateway.server.close(), gateway.server.close()]
    expect(first).toBe(second)
    expect(await waiting).toMatchObject({ status: 503, body: { type: 'error' } })
    await first
    await expect.poll(() => simulator.stats.inFlight).toBe(0)
  }
  {
    await using gateway = await TestGateway.start()
    await gateway.ask(asked.chat.path, { body: asked.chat.body })
    await gateway.server.drain()
    expect(await gateway.ask('/v1/sessions', { body: {} })).toMatchObject({
      status: 503,
      headers: { 'retry-after': '1' },
      body: { error: { code: 'closed' } },
    })
  }
  expect(await leftSince(before)).toEqual([])
})

test('all parts of a server are closed, also if one of them fails to close', async () => {
  const before = activeResources()
  {
    await using runs = await temporaryRuns()
    const run = { root: runs.root, name: 'gateway' }
    {
      await using gateway = await TestGateway.start({ run })
      const { server } = gateway
      const close = server.gateway.close.bind(server.gateway)
      Object.defineProperty(server.gateway, 'close', {
        value: async () => {
          await close()
          throw new Error('a backend is stuck')
        },
      })
      const failure: unknown = await server.close().catch((error: unknown) => error)
      expect(MillraceError.from(failure, 'internal').rawMessage).toContain('a backend is stuck')
      await expect(fetch(`${gateway.url}/health`)).rejects.toThrow('fetch failed')
      Object.defineProperty(server, 'close', { value: () => Promise.resolve() })
    }
    // Its lock, too.
    await using _again = await TestGateway.start({ run })
  }
  expect(await leftSince(before)).toEqual([])
})

test('two gateways cannot share a run, and an evaluation cannot use the run of a gateway', async () => {
  await using first = await TestGateway.start()
  const run = { root: first.root, name: 'gateway' }
  await expect(TestGateway.start({ run })).rejects.toMatchObject({ code: 'run_in_use' })
  const evaluation = evaluate({ environment: 'arithmetic', model: 'sim', run })
  await expect(evaluation.summary()).rejects.toMatchObject({
    code: 'run_mismatch',
    rawMessage: 'run gateway holds the sessions of a gateway; choose another name with --run (run.name)',
  })
  // A port that is taken leaves nothing behind either.
  const port = Number(new URL(first.url).port)
  await expect(TestGateway.start({ port })).rejects.toMatchObject({
    code: 'config_invalid',
    message: expect.stringContaining('--port') as string,
  })
})

test('two gateways in one process receive only their own events', async () => {
  const received: string[] = []
  const listening = (name: string) => ({
    onRequest: ({ status }: { readonly status: number }) => void received.push(`${name} ${status}`),
    onAlarm: () => void received.push(`${name} alarm`),
  })
  await using one = await TestGateway.start(listening('one'))
  await using _other = await TestGateway.start(listening('other'))
  await one.ask(asked.chat.path, { body: asked.chat.body })
  await one.ask(asked.chat.path, { body: asked.chat.body, key: 'nobody' })
  const { id } = await one.startSession()
  await one.ask(`/v1/sessions/${id}/end`, { method: 'POST' })
  expect(received).toEqual(['one 200', 'one 401', 'one alarm'])
})

test('the run file describes the current configuration of its gateway', async () => {
  await using runs = await temporaryRuns()
  const run = { root: runs.root, name: 'gateway' }
  const [key, secret] = ['k'.repeat(32), 's'.repeat(32)]
  const served = (): unknown => readRunFile(runFolder(run.root, run.name))?.config
  {
    await using _first = await TestGateway.start({ run })
    expect(served()).toMatchObject({ kind: 'gateway', models: [{ name: 'sim' }], aliases: {} })
  }
  await using taken = await SimulatorServer.start({})
  const port = Number(new URL(taken.url).port)
  await expect(TestGateway.start({ run, port, aliases: { never: 'sim' } })).rejects.toThrow(/port|in use/i)
  expect(served()).toMatchObject({ aliases: {} })
  const backends = [{ url: 'http://127.0.0.1:9/v1', headers: { 'x-route': secret } }]
  await using _second = await TestGateway.start({
    run,
    models: [{ name: 'policy', backends }],
    aliases: { agent: 'policy' },
    keys: [{ tenant: 'tests', key }],
    secrets: [secret],
  })
  expect(served()).toMatchObject({ kind: 'gateway', models: [{ name: 'policy' }], aliases: { agent: 'policy' } })
  expect(JSON.stringify(served())).not.toContain(secret)
})

test('a gateway is ready if a backend answers', async () => {
  const find = (backend: string) =>
    findModels({ backends: [backend], model: 'sim', env: {}, signal: new AbortController().signal })
  const simulator = await SimulatorServer.start({})
  await using gateway = await TestGateway.start(await find(simulator.url))
  expect(await gateway.ask('/ready', { key: null })).toMatchObject({ status: 200, body: { status: 'ready' } })
  await simulator.close()
  await using alone = await TestGateway.start(await find(simulator.url))
  expect(await alone.ask('/ready', { key: null })).toMatchObject({
    status: 503,
    body: { status: 'not ready', why: 'none of its backends can be reached (1)' },
  })
  expect(await alone.ask('/health', { key: null })).toMatchObject({ status: 200, body: { status: 'ok' } })
  // The first gateway learns it when it asks for the list of models.
  await expect.poll(() => gateway.ask('/ready', { key: null })).toMatchObject({ status: 503 })
})

test('a gateway is not ready while all requests wait for overloaded backends', async () => {
  await using simulator = await SimulatorServer.start({ overload: { forMs: 3_600_000 } })
  const backends = [{ url: simulator.url }]
  await using gateway = await TestGateway.start({ models: [{ name: 'sim', backends, maxTries: 2 }] })
  // Models are listed all the same.
  expect(await gateway.ask('/ready', { key: null })).toMatchObject({ status: 200 })
  const waiting = gateway.ask(asked.chat.path, { body: asked.chat.body })
  await expect
    .poll(() => gateway.ask('/ready', { key: null }))
    .toMatchObject({
      status: 503,
      body: { why: 'its backends are paused, overloaded or unreachable: requests wait until one answers' },
    })
  simulator.simulator.setOverload(false)
  expect(await waiting).toMatchObject({ status: 200 })
  expect(await gateway.ask('/ready', { key: null })).toMatchObject({ status: 200, body: { status: 'ready' } })
})

test('metrics count requests, samples, sessions and alarms', async () => {
  await using gateway = await TestGateway.start()
  const { id, key } = await gateway.startSession()
  const empty = await gateway.startSession()
  await gateway.ask(asked.chat.path, { body: { ...asked.chat.body, stream: true }, key })
  await gateway.ask(asked.messages.path, { body: asked.messages.body, key: 'wrong' })
  for (const each of [id, empty.id]) await gateway.ask(`/v1/sessions/${each}/end`, { method: 'POST' })
  const { text } = await gateway.ask('/metrics')
  for (const line of [
    'millrace_gateway_requests_total{api="chat",model="sim",status="200",outcome="complete"} 1',
    'millrace_gateway_requests_total{api="messages",model="",status="401",outcome="refused"} 1',
    'millrace_gateway_first_token_seconds_count{api="chat"} 1',
    'millrace_gateway_samples_total{result="complete"} 1',
    'millrace_gateway_sessions_started_total 2',
    'millrace_gateway_sessions_ended_total{why="ended"} 2',
    'millrace_gateway_session_alarms_total{alarm="nothing_captured"} 1',
    'millrace_gateway_sessions_open 0',
    'millrace_backend_calls_total{backend="simulator",status="complete"} 1',
    'millrace_model_calls_total{model="sim",status="complete"} 1',
  ]) {
    expect(text).toContain(line)
  }
})
