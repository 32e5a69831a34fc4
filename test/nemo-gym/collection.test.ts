/** What a collector that sends many rows at once must be able to rely on. */
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { type IncomingMessage, request } from 'node:http'
import { connect } from 'node:net'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { calls, temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { largeAggregateBody } from '../../scripts/interop/nemo-gym/aggregate-cases.ts'
import { type GymOptions, RolloutServer, RolloutService, type ServiceOptions } from '../../src/serve/index.ts'
import { fixture } from '../support/cli/millrace-process.ts'
import { chatReply, ScriptedServer, sendJson } from '../support/inference/scripted-server.ts'
import { echo, TestServer } from '../support/serve/test-server.ts'
import { temporaryFolder } from '../support/tools/temporary-folder.ts'

const environment = fixture('troubled.ts')
/** A model behind HTTP, which looks once and then answers. It fails for rows whose trouble is the model. */
async function startModel(): Promise<ScriptedServer> {
  return await ScriptedServer.start((response, { body }) => {
    if (body.includes('Your trouble: model')) return sendJson(response, { error: { message: 'out of memory' } }, 500)
    if (body.includes('"role":"tool"')) return sendJson(response, chatReply('Fine.'))
    const message = calls({ look: {} })
    return sendJson(response, chatReply('', { choices: [{ index: 0, message, finish_reason: 'tool_calls' }] }))
  })
}

type Started = AsyncDisposable & { readonly url: string; readonly service: RolloutService }

async function startServer(
  model: ScriptedServer,
  options: Partial<ServiceOptions> = {},
  nemoGym: GymOptions = { failures: 'class' },
): Promise<Started> {
  await using ends = new AsyncDisposableStack()
  const { root } = ends.use(await temporaryRuns())
  const service = ends.use(
    await RolloutService.open({
      environment,
      model: { name: 'm', maxTries: 2, backends: [{ url: model.url }] },
      preflight: false,
      run: { root },
      ...options,
    }),
  )
  const { url } = ends.use(await RolloutServer.open({ service, port: 0, nemoGym }))
  const all = ends.move()
  return { url, service, [Symbol.asyncDispose]: () => all.disposeAsync() }
}

async function post(url: string, path: string, body: object, signal?: AbortSignal): Promise<Response> {
  return await fetch(url + path, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
    ...(signal && { signal }),
  })
}

const row = (trouble: string, more: object = {}) => ({ responses_create_params: { input: [] }, trouble, ...more })

/** The class of each row's reply, or its reward. */
async function cameTo(response: Response): Promise<unknown> {
  const { _ng_failure_class: failure, reward } = (await response.json()) as Record<string, unknown>
  return failure ?? reward
}

const ends = {
  none: 1,
  tool: 1,
  setup: 'env_error',
  update: 'agent_error',
  reward: 'reward_error',
  exit: 'poisoned',
  model: 'model_error',
} as const

test('no row of many ends the collection of the others, whatever is wrong with it', async () => {
  await using model = await startModel()
  await using server = await startServer(model, { workers: 2, retries: 1 })
  const troubles = Object.keys(ends) as (keyof typeof ends)[]
  // One that takes its worker along is enough.
  const several = [...troubles, ...troubles, ...troubles].filter((trouble) => trouble !== 'exit')
  const rows: readonly (readonly [body: object, end: unknown])[] = [
    ...[...several, 'exit' as const].map(
      (trouble, index) => [row(trouble, { _ng_task_index: index, _ng_rollout_index: 0 }), ends[trouble]] as const,
    ),
    [{}, 'task_invalid'],
    [{ trouble: 'none' }, 'task_invalid'],
    [row('unheard of'), 'task_invalid'],
    [row('none', { responses_create_params: { foo: 1 } }), 'task_invalid'],
    // The one agent of a server is meant whatever the row calls it.
    [row('none', { agent_ref: 7 }), 1],
  ]
  const replies = await Promise.all(rows.map(async ([body]) => await post(server.url, '/run', body)))
  expect(new Set(replies.map(({ status }) => status))).toEqual(new Set([200]))
  expect(await Promise.all(replies.map(cameTo))).toEqual(rows.map(([, end]) => end))
})

test('a model that fails is asked a bounded number of times, which the rollout and the metrics show', async () => {
  await using model = await startModel()
  await using server = await startServer(model, { retries: 1 })
  const response = await post(server.url, '/run', row('model'))
  const { error } = (await response.json()) as { readonly error: { readonly code: string; readonly message: string } }
  // Two tries in each of two attempts.
  expect(model.requests).toHaveLength(4)
  expect(error).toMatchObject({ code: 'model_server_error', message: expect.stringContaining('out of memory') })
  expect(server.service.record('0-0')).toMatchObject({ attempt: 2, outcome: 'model_error' })
  const metrics = await (await fetch(`${server.url}/metrics`)).text()
  expect(metrics).toContain('millrace_model_tries_total{model="m"} 4')
  expect(metrics).toContain('millrace_model_failed_tries_total{model="m",cause="model_server_error"} 4')
})

test('clients that leave cut their model calls on the wire, and no turn follows', async () => {
  await using model = await ScriptedServer.start(() => {})
  await using server = await startServer(model, { bounds: { abandonGraceMs: 0 } })
  const clients = Array.from({ length: 20 }, (_, index) => {
    const leaving = new AbortController()
    const place = index % 2 === 0 ? { _ng_task_index: index, _ng_rollout_index: 0 } : {}
    const gone = post(server.url, '/run', row('none', place), leaving.signal).then(
      () => 'answered',
      () => 'left',
    )
    return { leaving, gone }
  })
  await model.received(clients.length)
  for (const { leaving } of clients) leaving.abort()
  expect(new Set(await Promise.all(clients.map(({ gone }) => gone)))).toEqual(new Set(['left']))
  await Promise.all(model.requests.map(({ closed }) => closed))
  await expect.poll(() => server.service.status()).toMatchObject({ running: 0, queued: 0, outcomes: { cancelled: 20 } })
  expect(model.requests).toHaveLength(clients.length)
})

test('a client that leaves while its row is read may ask for it again', async () => {
  await using server = await TestServer.start(echo, { nemoGym: { failures: 'class' }, bounds: { abandonGraceMs: 0 } })
  const { hostname, port } = new URL(server.httpServer.url)
  // Long enough to be read on a thread.
  const rows = Array.from({ length: 20 }, (_, index) => ({
    responses_create_params: { input: [] },
    word: `pear ${index} ${'x'.repeat(400_000)}`,
    _ng_task_index: index,
    _ng_rollout_index: 0,
  }))
  for (const each of rows) {
    const body = JSON.stringify(each)
    const socket = connect(Number(port), hostname)
    const head = `POST /run HTTP/1.1\r\nhost: ${hostname}:${port}\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n`
    const write = async (part: string) => await new Promise<void>((resolve) => socket.write(part, () => resolve()))
    await write(head + body.slice(0, -1))
    // Until then the server has read it.
    for (let round = 0; round < 3; round += 1) await server.get('/health')
    await write(body.slice(-1))
    socket.destroy()
  }
  const settled = (): boolean => {
    const { accepted, outcomes } = server.service.status()
    const ended = Object.values(outcomes).reduce((sum, count) => sum + count, 0)
    return accepted.rollouts > rows.length / 2 && ended === accepted.rollouts
  }
  await expect.poll(settled).toBe(true)
  const again = await Promise.all(rows.map(async (each) => await server.send('POST', '/run', each)))
  expect(again.map(({ body: { _ng_failure_class: failure, reward } }) => failure ?? reward)).toEqual(rows.map(() => 1))
})

test.for([
  ['on a worker', 'here', { workers: 2 }],
  ['on a thread for rewards', 'thread', {}],
] as const)('a verifier that computes %s does not hold up other rows', async ([, where, options]) => {
  await using folder = await temporaryFolder()
  const [begun, until] = [join(folder.path, 'begun'), join(folder.path, 'until')]
  await using model = await startModel()
  const heavyVerifier = fixture('heavy-verifier.ts')
  await using server = await startServer(model, { environment: heavyVerifier, options: { where }, ...options })
  const light = { responses_create_params: { input: [] } }
  const heavy = post(server.url, '/run', { ...light, begun, until }).then(cameTo)
  await expect.poll(() => existsSync(begun)).toBe(true)
  for (let round = 0; round < 10; round += 1) {
    expect((await fetch(`${server.url}/health`)).status).toBe(200)
    expect(await cameTo(await post(server.url, '/run', light))).toBe(1)
  }
  await writeFile(until, '')
  expect(await heavy).toBe(1)
})

test('metrics of 10,000 rows are counted while others are answered', async () => {
  await using server = await TestServer.start(echo, { nemoGym: { failures: 'class' } })
  const body = Buffer.from(largeAggregateBody(10_000))
  const headers = { 'content-type': 'application/json', 'content-length': body.length }
  const counting = request(`${server.httpServer.url}/aggregate_metrics`, { method: 'POST', headers })
  counting.write(body.subarray(0, -1))
  // All but the last byte has been sent, and the server has had time to read it.
  for (let round = 0; round < 20; round += 1) await server.get('/health')
  const ended = new AbortController()
  const counted = once(counting.end(body.subarray(-1)), 'response')
    .then(async ([response]) => await text(response as IncomingMessage))
    .finally(() => ended.abort())
  const answered = { health: 0, run: 0 }
  const keepAsking = async (what: keyof typeof answered, ask: () => Promise<{ readonly status: number }>) => {
    while (!ended.signal.aborted) {
      expect((await ask()).status).toBe(200)
      answered[what] += 1
    }
  }
  const asked = { responses_create_params: { input: [] }, word: 'pear' }
  await Promise.all([
    keepAsking('health', async () => await server.get('/health')),
    keepAsking('run', async () => await server.send('POST', '/run', asked)),
  ])
  expect(await counted).toContain('"agent_metrics"')
  // About 600 of them. If the server counted on its loop, there would be a dozen, while the reply is sent.
  expect(answered.health).toBeGreaterThan(50)
  expect(answered.run).toBeGreaterThan(0)
})
