import { connect, createServer } from 'node:net'
import { temporaryRuns } from 'millrace/testing'
import { describe, expect, test } from 'vitest'
import { AddressGuard } from '../../src/serve/gateway/address-guard.ts'
import { SimulatorServer } from '../../src/simulator/index.ts'
import { adminKey, TestGateway, type Reply } from '../support/gateway/test-gateway.ts'

const hello = { messages: [{ role: 'user', content: 'What is 6 * 7?' }] }

async function chat(gateway: TestGateway, model: string): Promise<Reply> {
  return await gateway.ask('/v1/chat/completions', { body: { ...hello, model } })
}

function register(gateway: TestGateway, body: object): Promise<Reply> {
  return gateway.ask('/v1/backends', { body })
}

const hostOf = ({ url }: SimulatorServer): string => new URL(url).host

describe('backends', () => {
  test('are registered together, again without effect, and serve at once', async () => {
    await using one = await SimulatorServer.start({ models: 'policy' })
    await using two = await SimulatorServer.start({ models: 'policy' })
    await using gateway = await TestGateway.start()
    const body = { backends: [{ url: one.url }, { url: two.url, model: 'policy', engine: 'vllm' }] }
    const answer = await register(gateway, body)
    expect(answer.status, answer.text).toBe(200)
    expect(answer.body).toEqual({
      ok: true,
      backends: [one, two].map((server) => ({ url: server.url, ok: true, id: hostOf(server), models: ['policy'] })),
    })
    expect((await register(gateway, body)).body).toEqual(answer.body)
    const sessions = await gateway.startSessions({ groupSize: 8 })
    const replies = sessions.map(({ key }) =>
      gateway.ask('/v1/chat/completions', { key, body: { ...hello, model: 'policy' } }),
    )
    expect((await Promise.all(replies)).map(({ status }) => status)).toEqual(sessions.map(() => 200))
    expect([one, two].map(({ stats }) => stats.requests >= 3)).toEqual([true, true])
    const { body: list } = await gateway.ask('/v1/backends')
    expect(list).toMatchObject({ backends: [{ id: 'sim:sim' }, { id: hostOf(one) }, { id: hostOf(two) }] })
  })

  test('that cannot be reached are not registered, and the others are', async () => {
    await using server = await SimulatorServer.start({ models: 'policy' })
    await using gateway = await TestGateway.start()
    const gone = 'http://127.0.0.1:9/v1'
    const { status, body } = await register(gateway, { backends: [{ url: gone }, { url: server.url }] })
    expect(status).toBe(502)
    expect(body).toMatchObject({ ok: false, backends: [{ url: gone, ok: false }, { ok: true }] })
    expect((await chat(gateway, 'policy')).status).toBe(200)
  })

  test('get their own key, never one of the gateway, and a new one when it is sent', async () => {
    await using server = await SimulatorServer.start({ models: 'policy', apiKey: 'first' })
    await using gateway = await TestGateway.start({ env: { OPENAI_API_KEY: 'first' } })
    expect((await register(gateway, { url: server.url })).status).toBe(502)
    expect((await register(gateway, { url: server.url, apiKey: 'first' })).status).toBe(200)
    expect((await chat(gateway, 'policy')).status).toBe(200)
    const { text } = await gateway.ask('/v1/backends')
    expect(text).not.toContain('first')
  })

  test('are removed when their requests have ended, and unknown afterwards', async () => {
    await using server = await SimulatorServer.start({ models: 'policy', tokensPerSecond: 100 })
    await using gateway = await TestGateway.start()
    await register(gateway, { url: server.url })
    await gateway.ask('/v1/backends/pause', { body: { backends: [server.url] } })
    await gateway.ask('/v1/backends/resume', { body: {} })
    const running = chat(gateway, 'policy')
    await expect.poll(() => server.stats.inFlight).toBe(1)
    const removed = await gateway.ask(`/v1/backends/${hostOf(server)}`, { method: 'DELETE' })
    expect([removed.status, server.stats.inFlight]).toEqual([200, 0])
    expect((await running).status).toBe(200)
    expect((await chat(gateway, 'policy')).status).toBe(404)
    expect((await gateway.ask(`/v1/backends/${hostOf(server)}`, { method: 'DELETE' })).status).toBe(404)
    expect((await gateway.ask('/v1/backends/sim:sim', { method: 'DELETE' })).status).toBe(409)
  })

  test('survive a restart', async () => {
    await using runs = await temporaryRuns()
    await using server = await SimulatorServer.start({ models: 'policy' })
    const run = { root: runs.root, name: 'gateway' }
    {
      await using gateway = await TestGateway.start({ run })
      await register(gateway, { url: server.url })
    }
    await using gateway = await TestGateway.start({ run })
    expect((await chat(gateway, 'policy')).status).toBe(200)
  })

  test('that come and go a hundred times leave no socket', { timeout: 60_000 }, async () => {
    await using server = await SimulatorServer.start({ models: 'policy,other' })
    await using gateway = await TestGateway.start()
    const open = new Set<object>()
    await using counting = await countingProxy(server.port, open)
    const url = `http://127.0.0.1:${counting.port}/v1`
    for (let round = 0; round < 100; round += 1) {
      expect((await register(gateway, { url, model: 'policy' })).status).toBe(200)
      if (round % 10 === 0) expect((await chat(gateway, 'policy')).status).toBe(200)
      expect((await gateway.ask(`/v1/backends/${encodeURIComponent(url)}`, { method: 'DELETE' })).status).toBe(200)
    }
    await expect.poll(() => open.size).toBe(0)
    expect(gateway.server.gateway.status().models.map(({ name }) => name)).toEqual(['sim'])
  })
})

/** A way to a server that counts the connections through it. */
async function countingProxy(port: number, open: Set<object>): Promise<{ readonly port: number } & AsyncDisposable> {
  const proxy = createServer((socket) => {
    open.add(socket)
    const upstream = connect(port, '127.0.0.1')
    socket.pipe(upstream).pipe(socket)
    socket.on('error', () => upstream.destroy())
    upstream.on('error', () => socket.destroy())
    socket.on('close', () => {
      open.delete(socket)
      upstream.destroy()
    })
  })
  await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve))
  const address = proxy.address()
  return {
    port: typeof address === 'object' && address ? address.port : 0,
    [Symbol.asyncDispose]: async () => {
      proxy.close()
    },
  }
}

describe('an address', () => {
  test.each([
    'http://169.254.169.254/v1',
    'http://[fe80::1]/v1',
    'http://[::ffff:169.254.169.254]/v1',
    'http://0.0.0.0:8000/v1',
    'http://224.0.0.1/v1',
    'http://2852039166/v1',
    'ftp://gpu-1/v1',
    'file:///etc/passwd',
    'http://user:secret@gpu-1/v1',
    'gpu-1:8000',
  ])('%s is refused, before anybody is asked', async (url) => {
    await using gateway = await TestGateway.start()
    const { status, text } = await register(gateway, { url })
    expect(status, text).toBe(400)
    expect(text).not.toContain('secret@')
  })

  test('must be one that the file allows, if it names some', async () => {
    const guard = new AddressGuard(['10.0.0.0/8', 'localhost', '127.0.0.9'])
    await guard.check('http://10.1.2.3:8000/v1')
    await guard.check('http://127.0.0.9/v1')
    await guard.check('http://localhost:8000/v1')
    await expect(guard.check('http://127.0.0.1/v1')).rejects.toMatchObject({ code: 'usage' })
  })

  test('is checked where a connection is made, too', async () => {
    const guard = new AddressGuard(['192.0.2.0/24'])
    const failure = await new Promise((resolve) => guard.lookup('localhost', {}, (error) => resolve(error)))
    expect(failure).toMatchObject({ code: 'usage' })
  })
})

describe('keys', () => {
  test('are issued once, listed as digests, survive a restart, and can be revoked', async () => {
    await using runs = await temporaryRuns()
    const run = { root: runs.root, name: 'gateway' }
    let issued: { readonly id: string; readonly key: string }
    {
      await using gateway = await TestGateway.start({ run })
      const { status, body } = await gateway.ask('/v1/keys', { body: { tenant: 'research' } })
      expect(status).toBe(201)
      issued = body as unknown as typeof issued
      const sessions = await gateway.ask('/v1/sessions', { key: issued.key, body: {} })
      expect(sessions.status).toBe(201)
      expect((await gateway.ask('/v1/keys', { key: issued.key })).status).toBe(403)
    }
    await using gateway = await TestGateway.start({ run })
    expect((await gateway.ask('/v1/sessions', { key: issued.key })).body).toMatchObject({ sessions: [{}] })
    const { text, body } = await gateway.ask('/v1/keys')
    expect(body).toMatchObject({ keys: [{ id: issued.id, tenant: 'research', digest: expect.any(String) }] })
    expect(text).not.toContain(issued.key)
    expect((await gateway.ask(`/v1/keys/${issued.id}`, { method: 'DELETE' })).status).toBe(200)
    expect((await gateway.ask('/v1/sessions', { key: issued.key })).status).toBe(401)
    expect((await gateway.ask(`/v1/keys/${issued.id}`, { method: 'DELETE' })).status).toBe(404)
    expect((await gateway.ask('/v1/sessions', { key: adminKey })).status).toBe(200)
  })
})
