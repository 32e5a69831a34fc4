import { describe, expect, test } from 'vitest'
import { SimulatedFleet } from '../support/gateway/simulated-fleet.ts'
import { ScriptedServer, sendJson } from '../support/inference/scripted-server.ts'
import { TestGateway } from '../support/gateway/test-gateway.ts'

/** A reply takes about as long as two requests of a test. */
const slow = { tokensPerSecond: 100 }
/** The first token comes at once, and the next later than any test takes. */
const endless = { tokensPerSecond: 0.01 }

describe('a pause', () => {
  test('reaches every engine, and new requests wait until it ends', async () => {
    await using fleet = await SimulatedFleet.start({ count: 2 })
    const paused = await fleet.order('pause')
    expect(paused).toMatchObject({ httpStatus: 200, ok: true, epoch: 1 })
    expect(paused.backends).toEqual(
      fleet.servers.map((server) => ({ backend: fleet.idOf(server), ok: true, status: 'paused', mode: 'finish' })),
    )
    expect(fleet.servers.map(({ simulator }) => simulator.engine.isPaused)).toEqual([true, true])
    const { key } = await fleet.gateway.startSession()
    const waiting = fleet.chat(key)
    await expect.poll(() => fleet.gateway.server.gateway.status().models[0]?.waiting).toBe(1)
    expect(await fleet.list()).toMatchObject([
      { state: 'paused', models: ['policy'], inFlight: 0, epoch: 1 },
      { state: 'paused', leaseMs: expect.any(Number) },
    ])
    const { text } = await fleet.gateway.ask('/metrics')
    expect(text).toContain('millrace_gateway_backends_paused 2')
    expect(await fleet.order('resume', { epoch: 1 })).toMatchObject({ httpStatus: 200, ok: true })
    expect((await waiting).status).toBe(200)
    expect(fleet.servers.map(({ simulator }) => simulator.engine.isPaused)).toEqual([false, false])
  })

  test('of one backend leaves the others to its sessions', async () => {
    await using fleet = await SimulatedFleet.start({ count: 2 })
    const [one, two] = fleet.servers.map((server) => fleet.idOf(server)) as [string, string]
    expect(await fleet.order(`${encodeURIComponent(one)}/pause`)).toMatchObject({
      ok: true,
      backends: [{ backend: one, status: 'paused' }],
    })
    const sessions = await fleet.gateway.startSessions({ groupSize: 4 })
    const replies = await Promise.all(sessions.map(({ key }) => fleet.chat(key)))
    expect(replies.map(({ status }) => status)).toEqual([200, 200, 200, 200])
    expect(fleet.servers.map(({ stats }) => stats.requests)).toEqual([0, 4])
    expect(await fleet.list()).toMatchObject([{ state: 'paused' }, { id: two, state: 'serving' }])
  })

  test('with mode finish waits for replies in the making', async () => {
    await using fleet = await SimulatedFleet.start({ simulator: slow })
    const { key } = await fleet.gateway.startSession()
    const reply = fleet.chat(key)
    await expect.poll(() => fleet.server.stats.inFlight).toBe(1)
    await fleet.order('pause', { mode: 'finish' })
    expect(fleet.server.stats.inFlight).toBe(0)
    expect((await reply).status).toBe(200)
  })

  test('with mode abort sends requests again, but not those whose client has seen something', async () => {
    await using fleet = await SimulatedFleet.start({ simulator: endless })
    const [seen, unseen] = await fleet.gateway.startSessions({ groupSize: 2 })
    const stream = await fleet.gateway.open('/v1/chat/completions', {
      key: seen?.key ?? '',
      body: { model: 'policy', stream: true, messages: [{ role: 'user', content: 'What is 6 * 7?' }] },
    })
    const whole = fleet.chat(unseen?.key ?? '')
    await expect.poll(() => fleet.server.stats.inFlight).toBe(2)
    expect(await fleet.order('pause', { mode: 'abort' })).toMatchObject({ ok: true, backends: [{ mode: 'abort' }] })
    expect(await stream.body.text()).toContain('error')
    fleet.server.simulator.change({ tokensPerSecond: 0 })
    await fleet.order('resume')
    expect((await whole).status).toBe(200)
    expect(fleet.server.stats.requests).toBe(3)
  })

  test('with mode continue lets replies end if they cannot go on, and says so', async () => {
    await using fleet = await SimulatedFleet.start({ simulator: slow })
    const { key } = await fleet.gateway.startSession()
    const reply = fleet.chat(key)
    await expect.poll(() => fleet.server.stats.inFlight).toBe(1)
    const { backends } = await fleet.order('pause', { mode: 'continue' })
    expect(backends).toMatchObject([
      { ok: true, mode: 'finish', note: expect.stringContaining('without exact tokens') },
    ])
    expect((await reply).status).toBe(200)
  })

  test('refuses requests with 429 where the model is to', async () => {
    await using fleet = await SimulatedFleet.start({ gateway: { whenPaused: 'refuse' } })
    await fleet.order('pause')
    const { key } = await fleet.gateway.startSession()
    const { status, headers } = await fleet.chat(key)
    expect([status, headers['retry-after']]).toEqual([429, '1'])
  })

  test('is made by the gateway alone where the engine cannot be paused', async () => {
    await using fleet = await SimulatedFleet.start({ simulator: { engineControls: false } })
    expect(await fleet.order('pause')).toMatchObject({ ok: true, backends: [{ status: 'paused' }] })
    const { key } = await fleet.gateway.startSession()
    const waiting = fleet.chat(key)
    await expect.poll(() => fleet.gateway.server.gateway.status().models[0]?.waiting).toBe(1)
    expect(await fleet.order('version', { version: '5' })).toMatchObject({ ok: true, backends: [{ version: '5' }] })
    await fleet.order('resume')
    expect((await waiting).status).toBe(200)
  })
})

describe('an epoch', () => {
  test('that is over changes nothing', async () => {
    await using fleet = await SimulatedFleet.start()
    expect(await fleet.order('pause', { epoch: 7 })).toMatchObject({ epoch: 7 })
    expect(await fleet.order('pause')).toMatchObject({ epoch: 8 })
    for (const [what, epoch] of [
      ['resume', 7],
      ['pause', 7],
    ] as const) {
      expect(await fleet.order(what, { epoch })).toMatchObject({ httpStatus: 409 })
      expect(await fleet.list()).toMatchObject([{ state: 'paused', epoch: 8 }])
    }
    expect(await fleet.order('resume', { epoch: 8 })).toMatchObject({ httpStatus: 200 })
    // A pause that comes after its own resume would never end.
    expect(await fleet.order('pause', { epoch: 8 })).toMatchObject({ httpStatus: 409 })
    expect(await fleet.list()).toMatchObject([{ state: 'serving' }])
    expect(await fleet.order('resume')).toMatchObject({ httpStatus: 200 })
  })

  test('that is repeated renews the lease, and pauses once', async () => {
    await using fleet = await SimulatedFleet.start({ simulator: slow })
    const { key } = await fleet.gateway.startSession()
    const reply = fleet.chat(key)
    await expect.poll(() => fleet.server.stats.inFlight).toBe(1)
    const order = { epoch: 3, ttlMs: 60_000 }
    const answers = await Promise.all([fleet.order('pause', order), fleet.order('pause', { ...order, ttlMs: 90_000 })])
    expect(answers[1]).toEqual(answers[0])
    expect((await fleet.list())[0]?.leaseMs).toBeGreaterThan(60_000)
    await reply
  })
})

describe('a fault', () => {
  test('of one engine is said, and the rest go on', async () => {
    await using fleet = await SimulatedFleet.start({ count: 3 })
    const [failing] = fleet.servers
    failing?.simulator.change({ failingControls: '/pause' })
    const { httpStatus, ok, backends } = await fleet.order('pause')
    expect([httpStatus, ok]).toEqual([502, false])
    expect(backends.map((answer) => answer.ok)).toEqual([false, true, true])
    expect(backends[0]?.error).toContain('/pause?mode=wait')
    expect(await fleet.list()).toMatchObject([{ error: expect.any(String) }, { state: 'paused' }, { state: 'paused' }])
    expect(await fleet.order('resume')).toMatchObject({ httpStatus: 200 })
    const { key } = await fleet.gateway.startSession()
    expect((await fleet.chat(key)).status).toBe(200)
  })

  test('a resume that does not reach an engine is sent until it does', async () => {
    await using fleet = await SimulatedFleet.start({ count: 2 })
    await fleet.order('pause')
    fleet.server.simulator.change({ failingControls: '/resume' })
    const answer = await fleet.order('resume')
    expect(answer).toMatchObject({
      httpStatus: 502,
      backends: [{ ok: false, status: 'resuming' }, { status: 'serving' }],
    })
    const { key } = await fleet.gateway.startSession()
    expect((await fleet.chat(key)).status).toBe(200)
    fleet.server.simulator.change({ failingControls: '' })
    await expect.poll(async () => (await fleet.list())[0]?.state, { timeout: 5000 }).toBe('serving')
    expect(fleet.server.simulator.engine.isPaused).toBe(false)
    expect(fleet.alarms).toMatchObject([expect.stringContaining('does not resume'), expect.stringContaining('at last')])
  })

  test('a resume that never comes is made up for when the lease ends, with an alarm', async () => {
    await using fleet = await SimulatedFleet.start({ count: 2 })
    await fleet.order('pause', { ttlMs: 50 })
    const { key } = await fleet.gateway.startSession()
    expect((await fleet.chat(key)).status).toBe(200)
    await expect.poll(async () => (await fleet.list()).map(({ state }) => state)).toEqual(['serving', 'serving'])
    expect(fleet.alarms).toHaveLength(2)
    expect(fleet.alarms[0]).toMatch(/epoch 1.*ttlMs/)
    expect((await fleet.gateway.ask('/metrics')).text).toContain('millrace_gateway_fleet_alarms_total 2')
  })

  test('a backend that dies while it is paused holds up nobody', async () => {
    await using fleet = await SimulatedFleet.start({ count: 2 })
    await fleet.order('pause')
    await fleet.server.close()
    const answer = await fleet.order('resume')
    expect(answer).toMatchObject({
      httpStatus: 502,
      backends: [
        { ok: false, status: 'unreachable' },
        { ok: true, status: 'serving' },
      ],
    })
    const sessions = await fleet.gateway.startSessions({ groupSize: 8 })
    const replies = await Promise.all(sessions.map(({ key }) => fleet.chat(key)))
    expect(new Set(replies.map(({ status }) => status))).toEqual(new Set([200]))
    expect(await fleet.order('version', { version: '2' })).toMatchObject({
      httpStatus: 502,
      backends: [{ ok: false }, { ok: true, version: '2' }],
    })
  })

  test('engines that are paused go on when the gateway stops', async () => {
    await using fleet = await SimulatedFleet.start()
    await fleet.order('pause')
    await fleet.gateway.server.close()
    expect(fleet.server.simulator.engine.isPaused).toBe(false)
  })
})

test('SGLang is driven by its own routes', async () => {
  await using fleet = await SimulatedFleet.start({ simulator: { imitate: 'sglang' } })
  expect(await fleet.order('pause', { mode: 'abort' })).toMatchObject({ ok: true })
  expect(fleet.server.simulator.engine.isPaused).toBe(true)
  expect(await fleet.order('version', { version: '9' })).toMatchObject({ ok: true, backends: [{ version: '9' }] })
  expect(fleet.server.simulator.weightVersion).toBe('9')
  await fleet.order('resume')
  expect(fleet.server.simulator.engine.isPaused).toBe(false)
})

test('an order is for admins, for backends that exist, and checked', async () => {
  await using fleet = await SimulatedFleet.start()
  const { key } = await fleet.gateway.startSession()
  expect((await fleet.gateway.ask('/v1/backends', { key })).status).toBe(403)
  expect((await fleet.gateway.ask('/v1/backends/pause', { key, body: {} })).status).toBe(403)
  expect(await fleet.order('pause', { backends: ['nobody'] })).toMatchObject({ httpStatus: 404 })
  expect(await fleet.order('nobody/resume')).toMatchObject({ httpStatus: 404 })
  expect(await fleet.order('version')).toMatchObject({ httpStatus: 400 })
  expect(await fleet.order('pause', { mode: 'never' })).toMatchObject({ httpStatus: 400 })
  expect(await fleet.order('pause', { backends: [fleet.server.url] })).toMatchObject({ httpStatus: 200 })
})

test('only the tenant of the operator controls what all tenants use', async () => {
  const keys = [
    { tenant: 'default', key: 'key-of-the-operator' },
    { tenant: 'other', key: 'key-of-another-tenant' },
  ]
  await using gateway = await TestGateway.start({ keys })
  expect((await gateway.ask('/v1/backends', { key: keys[1]?.key ?? '' })).status).toBe(403)
  const { body } = await gateway.ask('/v1/backends', { key: keys[0]?.key ?? '' })
  expect(body).toMatchObject({ backends: [{ id: 'sim:sim', state: 'serving' }] })
})

test('64 backends are told at once: none answers before all have been told', async () => {
  let told = 0
  const all = Promise.withResolvers<void>()
  await using ends = new AsyncDisposableStack()
  const servers = await Promise.all(
    Array.from({ length: 64 }, async () =>
      ends.use(
        await ScriptedServer.start(async (response, { path }) => {
          if (path === '/is_paused') return sendJson(response, { is_paused: false })
          if (!path.startsWith('/pause')) return sendJson(response, {}, 404)
          told += 1
          if (told === 64) all.resolve()
          await all.promise
          return sendJson(response, { status: 'paused' })
        }),
      ),
    ),
  )
  const backends = servers.map(({ url }) => ({ url, engine: 'vllm' as const }))
  await using gateway = await TestGateway.start({ models: [{ name: 'policy', backends }] })
  const { status, body } = await gateway.ask('/v1/backends/pause', { body: {} })
  expect(status).toBe(200)
  expect(body).toMatchObject({ ok: true, backends: Array.from({ length: 64 }, () => ({ status: 'paused' })) })
})
