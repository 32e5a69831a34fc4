import { expect, test } from 'vitest'
import { type Handler, ScriptedServer, sendJson } from '../../test/support/inference/scripted-server.ts'
import { SimulatedFleet } from '../../test/support/gateway/simulated-fleet.ts'
import { adminKey } from '../../test/support/gateway/test-gateway.ts'
import { BackendsFailed, GatewayClient } from './index.ts'

function clientOf({ url }: { readonly url: string }, more: object = {}): GatewayClient {
  return new GatewayClient({ url, key: adminKey, retryForMs: 5000, ...more })
}

const answered = (status: string, more: object = {}): object => ({
  ok: true,
  epoch: 8,
  backends: [{ backend: 'a', ok: true, status, ...more }],
})
const partly = {
  ok: false,
  backends: [
    { backend: 'a', ok: true, status: 'paused' },
    { backend: 'b', ok: false, status: 'unreachable', error: 'refused' },
  ],
}

/** A gateway whose backends do what they are told, where `replies` has nothing else for a path; one reply is taken each time. */
function scripted(replies: Readonly<Record<string, Handler[]>> = {}): Promise<ScriptedServer> {
  return ScriptedServer.start((response, request) => {
    const handler = replies[request.path]?.shift()
    if (handler) return handler(response, request)
    if (request.path === '/v1/backends') sendJson(response, { epoch: 7, backends: [] })
    else sendJson(response, answered(request.path.endsWith('/resume') ? 'serving' : 'paused'))
    return undefined
  })
}

const cut: Handler = (response) => void response.socket?.destroy()
const pathsOf = ({ requests }: ScriptedServer): string[] =>
  requests.map(({ path }) => path.replace('/v1/backends', '') || 'list')

test('sessions are started, rewarded and ended', async () => {
  await using fleet = await SimulatedFleet.start()
  await using client = clientOf(fleet.gateway)
  const { groupId, sessions } = await client.startGroup({ groupSize: 2, taskId: 't' })
  const [one, other] = sessions
  if (!one || !other) throw new Error('two sessions were asked for')
  expect((await fleet.chat(one.key)).status).toBe(200)
  expect(await client.reward(one.id, { reward: 0.5 })).toMatchObject({ rewarded: { node: null, reward: 0.5 } })
  expect(await client.endSession(one.id)).toMatchObject({ state: 'ended', used: { requests: 1 } })
  expect(await client.session(other.id)).toMatchObject({ state: 'open', groupId })
  await expect(client.session('unknown')).rejects.toMatchObject({ code: 'session_not_found', data: { status: 404 } })
  await using stranger = clientOf(fleet.gateway, { key: 'wrong' })
  await expect(stranger.backends()).rejects.toMatchObject({
    code: 'gateway_refused',
    data: { status: 401, code: 'unauthorized' },
  })
})

test('an update pauses the backends, sets the version and resumes', async () => {
  await using fleet = await SimulatedFleet.start({ count: 2 })
  await using client = clientOf(fleet.gateway)
  const states = async (): Promise<unknown> => (await client.backends()).map(({ state, version }) => [state, version])
  const during = await client.weightUpdate({ version: '8', mode: 'abort' }, async ({ epoch, backends }) => {
    expect(backends).toMatchObject([
      { ok: true, mode: 'abort' },
      { ok: true, mode: 'abort' },
    ])
    await expect(client.pause({ epoch: epoch - 1 })).rejects.toMatchObject({ code: 'usage', data: { status: 409 } })
    return (await client.backends()).map(({ state }) => state)
  })
  expect(during).toEqual(['paused', 'paused'])
  expect(await states()).toEqual([
    ['serving', '8'],
    ['serving', '8'],
  ])
  const failing = client.weightUpdate({ version: '9' }, () => Promise.reject(new Error('no such file')))
  await expect(failing).rejects.toThrow('no such file')
  expect(await states()).toEqual([
    ['serving', '8'],
    ['serving', '8'],
  ])
})

test('a backend that fails is an error with the answers of all, and the others resume', async () => {
  await using fleet = await SimulatedFleet.start({ count: 2 })
  await using client = clientOf(fleet.gateway)
  fleet.server.simulator.change({ failingControls: '/pause' })
  const failure: unknown = await client
    .weightUpdate({ version: '8' }, () => expect.unreachable())
    .catch((error: unknown) => error)
  expect(failure).toBeInstanceOf(BackendsFailed)
  expect(failure).toMatchObject({
    code: 'backends_failed',
    backends: [{ ok: false, error: expect.stringContaining('/pause') }, { ok: true }],
  })
  expect((await client.backends()).map(({ state }) => state)).toEqual(['serving', 'serving'])
  const two = fleet.idOf(fleet.servers[1] ?? fleet.server)
  await client.weightUpdate({ version: '8', backends: [two] }, () => undefined)
  expect((await client.backends())[1]).toMatchObject({ state: 'serving', version: '8' })
})

test('a lost connection repeats the same order', async () => {
  await using server = await scripted({
    '/v1/backends/pause': [cut],
    '/v1/backends/version': [cut],
    '/v1/backends/resume': [cut],
  })
  await using client = clientOf({ url: `${server.origin}/` })
  await client.weightUpdate({ version: '8' }, () => undefined)
  expect(pathsOf(server)).toEqual(['list', '/pause', '/pause', '/version', '/version', '/resume', '/resume'])
  const [, first, again, , , resume] = server.requests.map(
    ({ body }) => JSON.parse(body || '{}') as { readonly epoch?: number },
  )
  expect(again).toEqual(first)
  expect(first?.epoch).toBeGreaterThan(7)
  expect(resume?.epoch).toBe(first?.epoch)
})

test('a start of sessions that may have happened is not repeated', async () => {
  await using server = await scripted({ '/v1/sessions': [cut] })
  await using client = clientOf({ url: `${server.origin}/` })
  await expect(client.startGroup()).rejects.toMatchObject({ code: 'gateway_unreachable', retryable: true })
  expect(server.requests).toHaveLength(1)
})

test('a version that fails is an error after the resume', async () => {
  await using server = await scripted({ '/v1/backends/version': [(response) => sendJson(response, partly, 502)] })
  await using client = clientOf({ url: `${server.origin}/` })
  await expect(client.weightUpdate({ version: '8' }, () => undefined)).rejects.toBeInstanceOf(BackendsFailed)
  expect(pathsOf(server)).toEqual(['list', '/pause', '/version', '/resume'])
})

test('a pause that ended before its update is an error', async () => {
  await using server = await scripted({
    '/v1/backends/version': [(response) => sendJson(response, answered('serving'))],
  })
  await using client = clientOf({ url: `${server.origin}/` })
  await expect(client.weightUpdate({ version: '8' }, () => undefined)).rejects.toThrow('a longer ttlMs')
})

test('a 502 of a proxy is asked again, and a page that is not JSON is refused', async () => {
  await using server = await scripted({
    '/v1/backends': [
      (response) => void response.writeHead(502).end('<html>'),
      (response) => void response.writeHead(503).end('{"error":{"code":"closed","message":"it drains"}}'),
      (response) => void response.end('<html>'),
    ],
  })
  await using client = clientOf({ url: `${server.origin}/` })
  await expect(client.backends()).rejects.toMatchObject({ code: 'gateway_refused' })
  expect(server.requests).toHaveLength(3)
  expect(() => clientOf({ url: 'localhost:8787' })).toThrow('http://127.0.0.1:8787')
})

test('an update whose signal aborts resumes', async () => {
  await using server = await scripted({ '/v1/backends/pause': [() => undefined] })
  await using client = clientOf({ url: `${server.origin}/` })
  const stop = new AbortController()
  const update = client.weightUpdate({ version: '8', signal: stop.signal }, () => expect.unreachable())
  await expect.poll(() => server.requests.length).toBe(2)
  stop.abort(new Error('enough'))
  await expect(update).rejects.toThrow('enough')
  expect(pathsOf(server)).toEqual(['list', '/pause', '/resume'])
})

test('closing ends the calls, twice is once, and nothing is left', async () => {
  await using server = await scripted({ '/v1/backends': [() => undefined, cut] })
  const client = clientOf({ url: server.origin }, { retryForMs: 60_000 })
  const calls = [client.backends(), client.backends()]
  await expect.poll(() => server.requests.length).toBe(2)
  const ends = calls.map((call) => expect(call).rejects.toMatchObject({ code: 'closed' }))
  await Promise.all([client.close(), client.close(), ...ends])
  await client[Symbol.asyncDispose]()
  await expect(client.backends()).rejects.toMatchObject({ code: 'closed' })
})
