import { once } from 'node:events'
import { createServer, type AddressInfo } from 'node:net'
import { setTimeout } from 'node:timers/promises'
import { SimulatorServer, type MillraceError } from 'millrace'
import { temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { activeResources, leftSince } from '../support/kit/active-resources.ts'
import { admin, OpenGateway } from '../support/gateway/open-gateway.ts'
import { BackendWatch } from '../../src/serve/gateway/backend-directory.ts'
import { descriptorBudget } from '../../src/http/descriptor-budget.ts'
import { LateServer } from '../support/inference/late-server.ts'
import { ScriptedServer, sendJson, type Handler } from '../support/inference/scripted-server.ts'
import {
  findModels,
  type ProbeResult,
  type FindModelsOptions,
  type GatewayServerOptions,
} from '../../src/serve/index.ts'
import { readRunFile, runFolder } from '../../src/store/index.ts'
import { authorized, startGateway } from '../support/gateway/gateway-process.ts'
import { asked, TestGateway } from '../support/gateway/test-gateway.ts'
import { startMillrace } from '../support/cli/millrace-process.ts'

async function gatewayFor(
  options: Partial<FindModelsOptions>,
  more: Partial<Omit<GatewayServerOptions, 'models'>> = {},
): Promise<TestGateway> {
  const found = await findModels({ backends: [], env: {}, signal: new AbortController().signal, ...options })
  return await TestGateway.start({ ...found, ...more })
}

const ready = async (gateway: TestGateway): Promise<number> => (await gateway.ask('/ready', { key: null })).status

test('a gateway starts before its only backend, and serves its models once it answers', async () => {
  const before = activeResources()
  {
    await using late = await LateServer.start()
    const received: ProbeResult[] = []
    const faults: MillraceError[] = []
    await using gateway = await gatewayFor(
      { backends: [late.url] },
      {
        aliases: { 'gpt-4o': 'sim' },
        onBackend: (result) => received.push(result),
        onFault: (error) => faults.push(error),
      },
    )
    expect((await gateway.ask('/health', { key: null })).status).toBe(200)
    expect(await gateway.ask('/ready', { key: null })).toMatchObject({
      status: 503,
      body: { why: 'no backend could be used since the start (1)' },
    })
    expect((await gateway.ask('/v1/models')).body).toMatchObject({ data: [] })
    expect(await gateway.ask('/v1/models/sim')).toMatchObject({ status: 503 })
    expect((await gateway.ask('/metrics')).text).toContain('\nmillrace_gateway_backends_awaited 1\n')
    const refusals = { chat: 503, responses: 503, messages: 529 } as const
    for (const [api, status] of Object.entries(refusals) as [keyof typeof refusals, number][]) {
      const { path, body } = asked[api]
      const refused = await gateway.ask(path, { body })
      expect(refused).toMatchObject({ status, headers: { 'retry-after': '5' } })
      expect(refused.text).toContain('one backend has not answered yet and may serve it')
    }
    expect(await gateway.ask('/generate', { body: { text: 'hi' } })).toMatchObject({ status: 503 })
    // Sessions do not wait for anybody.
    const session = await gateway.startSession()
    await using backend = await SimulatorServer.start({})
    late.put(backend.url)
    await expect.poll(() => ready(gateway), { timeout: 30_000 }).toBe(200)
    expect(await gateway.ask(asked.chat.path, { body: asked.chat.body, key: session.key })).toMatchObject({
      status: 200,
    })
    expect(await gateway.ask(asked.chat.path, { body: { ...asked.chat.body, model: 'gpt-4o' } })).toMatchObject({
      status: 200,
    })
    expect(await gateway.ask('/v1/models/nobody')).toMatchObject({ status: 404 })
    expect((await gateway.ask('/metrics')).text).toContain('\nmillrace_gateway_backends_awaited 0\n')
    expect(faults).toEqual([])
    expect(readRunFile(runFolder(gateway.root, 'gateway'))?.config).toMatchObject({ models: [{ name: 'sim' }] })
    expect(received).toMatchObject([{ backend: late.url, facts: { kind: 'vllm', models: [{ id: 'sim' }] } }])
  }
  expect(await leftSince(before)).toEqual([])
})

test('a request for a configured model waits for its backend, whose facts are read once it answers', async () => {
  await using late = await LateServer.start()
  await using gateway = await gatewayFor({ models: { sim: { backends: [{ url: late.url }] } } })
  expect((await gateway.ask('/v1/models')).body).toMatchObject({ data: [{ id: 'sim' }] })
  expect(await ready(gateway)).toBe(503)
  const waiting = gateway.ask(asked.chat.path, { body: asked.chat.body })
  await expect.poll(() => gateway.server.gateway.status().running).toBe(1)
  await using backend = await SimulatorServer.start({ imitate: 'sglang' })
  late.put(backend.url)
  expect((await waiting).status).toBe(200)
  // Only a backend that is known to be SGLang can be asked in its own API.
  const generate = async (): Promise<number> => (await gateway.ask('/generate', { body: { text: 'hi' } })).status
  await expect.poll(generate, { timeout: 30_000 }).toBe(200)
})

test('a backend that comes later takes a share of the requests for models of other backends', async () => {
  await using late = await LateServer.start()
  await using first = await SimulatorServer.start({ models: 'sim,own' })
  const askedAt = new Set<string | undefined>()
  await using gateway = await gatewayFor(
    { backends: [first.url, late.url] },
    { onRequest: ({ backend }) => askedAt.add(backend) },
  )
  const ask = async (): Promise<number> => {
    await gateway.ask(asked.chat.path, { body: asked.chat.body })
    return askedAt.size
  }
  expect(await ask()).toBe(1)
  await using second = await SimulatorServer.start({})
  late.put(second.url)
  await expect.poll(ask, { timeout: 30_000 }).toBe(2)
  expect((await gateway.ask('/v1/models')).body).toMatchObject({ data: [{ id: 'sim' }, { id: 'own' }] })
})

test('a backend that restarts with other models is probed again, and its old models are removed', async () => {
  await using late = await LateServer.start()
  await using first = await SimulatorServer.start({ models: 'old,both', ttftMs: 300 })
  await using second = await SimulatorServer.start({ models: 'both,new' })
  late.put(first.url)
  const { directory } = await findModels({ backends: [late.url], env: {}, signal: new AbortController().signal })
  await using open = await OpenGateway.open({
    models: directory.models,
    aliases: { agent: 'old', other: 'new' },
    awaited: 1,
  })
  const received: ProbeResult[] = []
  await using _watch = new BackendWatch({
    directory,
    listMs: 20,
    onProblem: (result) => received.push(result),
    onAnswer: (result) => {
      open.gateway.offer({ models: directory.models, facts: directory.facts })
      received.push(result)
    },
  })
  const ask = async (model: string): Promise<number | undefined> =>
    (await open.ask(admin, { ...asked.chat.body, model })).status
  expect([await ask('old'), await ask('agent'), await ask('both')]).toEqual([200, 200, 200])
  const under = open.send(admin, { ...asked.chat.body, model: 'old' })
  await expect.poll(() => first.stats.inFlight).toBe(1)
  late.put(second.url)
  await expect.poll(() => received).toMatchObject([{ facts: { models: [{ id: 'both' }, { id: 'new' }] } }])
  // What was under way ends where it began.
  await under.done
  expect(under.client.status).toBe(200)
  expect([await ask('new'), await ask('other'), await ask('both'), await ask('old')]).toEqual([200, 200, 200, 404])
  const { client } = open.send(admin, { ...asked.chat.body, model: 'agent' })
  await expect.poll(() => client.text).toContain('which no backend serves')
  expect(open.gateway.models().map(({ id }) => id)).toEqual(['both', 'new', 'other'])
})

test('a backend that rejects its key is reported, and gets no requests until it accepts the key', async () => {
  await using late = await LateServer.start()
  await using first = await SimulatorServer.start({ models: 'own,shared' })
  await using locked = await SimulatorServer.start({ models: 'own,shared', apiKey: 'another' })
  await using good = await SimulatorServer.start({ models: 'shared' })
  late.put(first.url)
  const { directory } = await findModels({
    backends: [late.url, good.url],
    env: { OPENAI_API_KEY: 'ours' },
    signal: new AbortController().signal,
  })
  await using open = await OpenGateway.open({ models: directory.models })
  const received: ProbeResult[] = []
  const takeIn = (result: ProbeResult): void => {
    open.gateway.offer({ models: directory.models, facts: directory.facts })
    received.push(result)
  }
  await using _watch = new BackendWatch({ directory, listMs: 20, onProblem: takeIn, onAnswer: takeIn })
  const ask = async (model: string): Promise<number | undefined> =>
    (await open.ask(admin, { ...asked.chat.body, model })).status
  late.put(locked.url)
  await expect.poll(() => received).toMatchObject([{ backend: late.url, problem: { code: 'model_auth' } }])
  expect(String(received[0]?.problem)).toContain('it rejects the key in OPENAI_API_KEY')
  const before = good.stats.requests
  expect([await ask('shared'), await ask('shared'), await ask('shared')]).toEqual([200, 200, 200])
  expect(good.stats.requests).toBe(before + 3)
  // Nobody else has it, and it is nothing that a client could mend.
  const { client } = open.send(admin, { ...asked.chat.body, model: 'own' })
  await expect.poll(() => client.text).toContain('Your own key is valid; tell the operator of this server')
  late.put(first.url)
  await expect.poll(() => received[1], { timeout: 30_000 }).toMatchObject({ facts: { models: [{ id: 'own' }, {}] } })
  expect(await ask('own')).toBe(200)
})

/** A server like vLLM, as far as a probe asks; `reply` answers real requests. */
const vllmLike =
  (reply: Handler): Handler =>
  (response, request) => {
    if (request.path === '/v1/models') sendJson(response, { data: [{ id: 'm', owned_by: 'vllm', max_model_len: 99 }] })
    else if (request.path !== '/v1/chat/completions') sendJson(response, {}, 404)
    else if (request.body === '{}') sendJson(response, {}, 400)
    else return reply(response, request)
    return undefined
  }

const tokens = { choices: [{ index: 0, token_ids: [7], logprobs: { content: [{ logprob: -1 }] } }] }

test.each([{ polls: true }, { polls: false }])(
  'a backend that cuts a stream when another request comes is not polled meanwhile: $polls',
  async ({ polls }) => {
    let isStreaming = false
    let cut = 0
    const stream: Handler = async (response, { body }) => {
      if (!body.includes('"stream":true')) return sendJson(response, tokens)
      isStreaming = true
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      for (let piece = 0; piece < 20; piece += 1) {
        if (cut > 0) return response.destroy()
        response.write('data: {"choices":[{"index":0,"delta":{"content":"x"}}]}\n\n')
        await setTimeout(10)
      }
      isStreaming = false
      return response.end('data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n')
    }
    // As llama-cpp-python does with interrupt_requests, its default.
    const answer = vllmLike(stream)
    await using server = await ScriptedServer.start((response, request) => {
      if (isStreaming) cut += 1
      return answer(response, request)
    })
    const { directory } = await findModels({ backends: [server.url], env: {}, signal: new AbortController().signal })
    await using open = await OpenGateway.open({ models: directory.models })
    const lists = (): number => server.requests.filter(({ path }) => path === '/v1/models').length
    const before = lists()
    const isActive = (backend: string, withinMs: number): boolean => open.gateway.isActive(backend, withinMs)
    const ignore = (): void => undefined
    await using _watch = new BackendWatch({
      directory,
      listMs: 20,
      polls,
      isActive,
      onProblem: ignore,
      onAnswer: ignore,
    })
    for (const _turn of [1, 2]) {
      const { client, done } = open.send(admin, { ...asked.chat.body, model: 'm', stream: true })
      await done
      expect(client.text.match(/"content":"x"/g)).toHaveLength(20)
    }
    expect(cut).toBe(0)
    if (polls) await expect.poll(lists).toBeGreaterThan(before)
    else expect(lists()).toBe(before)
  },
)

test('a backend whose first reply is too slow for the probe is probed for tokens again', async () => {
  let questions = 0
  await using server = await ScriptedServer.start(
    vllmLike((response) => {
      questions += 1
      sendJson(response, tokens, questions <= 8 ? 503 : 200)
    }),
  )
  const { directory } = await findModels({ backends: [server.url], env: {}, signal: new AbortController().signal })
  expect(directory.probeResults).toMatchObject([{ facts: { kind: 'vllm', tokenFields: undefined } }])
  const received: ProbeResult[] = []
  const hear = (result: ProbeResult): void => void received.push(result)
  await using _watch = new BackendWatch({ directory, listMs: 20, onProblem: hear, onAnswer: hear })
  await expect.poll(() => received).toMatchObject([{ facts: { tokenFields: { ids: true, logprobs: true } } }])
  expect(questions).toBe(9)
})

test('a model keeps its limits when it gets another backend', async () => {
  await using late = await LateServer.start()
  await using first = await SimulatorServer.start({ ttftMs: 60_000 })
  await using gateway = await gatewayFor({ backends: [first.url, late.url] })
  const { key } = await gateway.startSession()
  const waiting = gateway.ask(asked.chat.path, { body: asked.chat.body, key }).catch(() => undefined)
  await expect.poll(() => gateway.server.gateway.status().models).toMatchObject([{ calls: 1, inFlight: 1 }])
  await using second = await SimulatorServer.start({})
  late.put(second.url)
  await expect.poll(async () => (await gateway.ask('/metrics')).text, { timeout: 30_000 }).toContain('_awaited 0')
  expect(gateway.server.gateway.status().models).toMatchObject([{ name: 'sim', calls: 1, inFlight: 1 }])
  await gateway.server.close()
  await waiting
})

test('a gateway with pollBackends: false stays ready when its backend closes', async () => {
  const backend = await SimulatorServer.start({})
  await using polling = await gatewayFor({ backends: [backend.url] })
  await using silent = await gatewayFor({ backends: [backend.url] }, { pollBackends: false })
  await backend.close()
  await expect.poll(() => ready(polling)).toBe(503)
  expect(await ready(silent)).toBe(200)
})

test('the readiness reply names the reason if no backend can be used', async () => {
  await using late = await LateServer.start()
  const received: ProbeResult[] = []
  await using gateway = await gatewayFor(
    { backends: [late.url], model: 'nobody' },
    { onBackend: (result) => received.push(result) },
  )
  await using backend = await SimulatorServer.start({ models: 'sim' })
  late.put(backend.url)
  await expect.poll(() => received, { timeout: 30_000 }).toMatchObject([{ problem: { code: 'model_not_found' } }])
  expect(await gateway.ask('/ready', { key: null })).toMatchObject({
    status: 503,
    body: { why: 'none of its backends can be used (1): model_not_found; see the log' },
  })
  expect(await gateway.ask(asked.chat.path, { body: { ...asked.chat.body, model: 'nobody' } })).toMatchObject({
    status: 404,
  })
})

test('a misspelt model name gets a suggestion while a backend is awaited', async () => {
  await using gateway = await gatewayFor({ backends: ['sim', 'http://127.0.0.1:9/v1'] })
  const refused = await gateway.ask(asked.chat.path, { body: { ...asked.chat.body, model: 'smi' } })
  expect(refused).toMatchObject({ status: 503, headers: { 'retry-after': '5' } })
  expect(refused.text).toContain('Did you mean \\"sim\\"?')
})

test('an error thrown by onBackend is a fault, and does not affect the backend', async () => {
  await using late = await LateServer.start()
  const received: ProbeResult[] = []
  const faults: MillraceError[] = []
  await using gateway = await gatewayFor(
    { backends: [late.url] },
    {
      onBackend: (result) => {
        received.push(result)
        throw new Error('the log is full')
      },
      onFault: (error) => faults.push(error),
    },
  )
  await using backend = await SimulatorServer.start({})
  late.put(backend.url)
  await expect.poll(() => faults, { timeout: 30_000 }).toMatchObject([{ rawMessage: 'the log is full' }])
  expect(received).toMatchObject([{ facts: { kind: 'vllm' } }])
  expect((await gateway.ask(asked.chat.path, { body: asked.chat.body })).status).toBe(200)
})

test('half of the descriptors are reserved for a backend whose models are unknown', async () => {
  await using awaiting = await gatewayFor({ backends: ['sim', 'http://127.0.0.1:9/v1'] })
  await using settled = await gatewayFor({ backends: ['sim'] })
  const clientsOf = async (gateway: TestGateway): Promise<number> => {
    const { text } = await gateway.ask('/metrics')
    return Number(/^millrace_gateway_connections_max (\d+)$/m.exec(text)?.[1])
  }
  // Of the rest, a few are kept for those who find no room.
  expect(await clientsOf(awaiting)).toBeLessThanOrEqual(descriptorBudget())
  expect(await clientsOf(settled)).toBeGreaterThan(descriptorBudget())
})

test('the process reports the backends it waits for, and when they answer', async () => {
  await using runs = await temporaryRuns()
  await using late = await LateServer.start()
  await using gateway = await startGateway(runs.root, '--backend', `${late.url}?secret=1`)
  const { running } = gateway
  expect(running.stdout()).toContain(`warning: ${late.url} is not used until it answers`)
  await running.shows('stderr', 'waiting for a backend')
  await using backend = await SimulatorServer.start({})
  late.put(backend.url)
  await running.shows('stderr', 'a backend has answered')
  expect(await (await fetch(`${gateway.url}/v1/models`, { headers: authorized() })).json()).toMatchObject({
    data: [{ id: 'sim' }],
  })
  running.process.kill('SIGTERM')
  const { code, stderr } = await running.ended
  expect(code).toBe(0)
  expect(stderr).not.toContain('secret')
  expect(stderr).toContain('"tokens":"ids, logprobs, prompt')
})

test('a start that waits for a backend says so', async () => {
  await using runs = await temporaryRuns()
  // It reads, or it would not see the end of its clients.
  await using silent = createServer((socket) => socket.on('error', () => {}).resume()).listen(0, '127.0.0.1')
  await once(silent, 'listening')
  const { port } = silent.address() as AddressInfo
  const words = ['gateway', '--backend', `http://127.0.0.1:${port}/v1`, '--port', '0']
  await using running = startMillrace({ cwd: runs.root }, ...words)
  await running.shows('stderr', 'probing the backends')
  expect(running.stdout()).toBe('')
})

test('SIGTERM ends a gateway that waits for a backend', async () => {
  await using runs = await temporaryRuns()
  await using gateway = await startGateway(runs.root, '--backend', 'http://127.0.0.1:9/v1')
  gateway.running.process.kill('SIGTERM')
  expect(await gateway.running.ended).toMatchObject({ code: 0 })
})
