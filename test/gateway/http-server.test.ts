import { once } from 'node:events'
import { createServer } from 'node:http'
import { connect, type AddressInfo, type Socket } from 'node:net'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { SimulatorServer } from 'millrace'
import { expect, test } from 'vitest'
import { findModels } from '../../src/serve/index.ts'
import { runFiles } from '../../src/store/index.ts'
import type { LoggedRequest } from '../../src/telemetry/index.ts'
import { adminKey, apis, asked, TestGateway } from '../support/gateway/test-gateway.ts'

const authorization = `authorization: Bearer ${adminKey}`

/** A connection on which a test writes what it likes. */
async function dial(gateway: TestGateway): Promise<Socket> {
  const { hostname, port } = new URL(gateway.url)
  const socket = connect(Number(port), hostname)
  socket.on('error', () => {})
  await once(socket, 'connect')
  return socket
}

/** A backend that says the same to everybody. */
async function answering(status: number, text: string) {
  let asks = 0
  const server = createServer((_request, response) => {
    asks += 1
    response.writeHead(status).end(text)
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
    asks: () => asks,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

function post(path: string, body: unknown): string {
  const text = JSON.stringify(body)
  return `POST ${path} HTTP/1.1\r\nhost: here\r\n${authorization}\r\ncontent-length: ${text.length}\r\n\r\n${text}`
}

test('an invalid request during a reply does not corrupt the reply', async () => {
  await using simulator = await SimulatorServer.start({ 'faults.stall': 1 })
  await using gateway = await TestGateway.start({ models: [{ name: 'sim', backends: [{ url: simulator.url }] }] })
  const socket = await dial(gateway)
  let received = ''
  socket.setEncoding('utf8').on('data', (text: string) => (received += text))
  socket.write(post(asked.chat.path, { ...asked.chat.body, stream: true }))
  await expect.poll(() => received).toContain('data: ')
  const closed = once(socket, 'close')
  socket.write('this is no request\r\n\r\n')
  await closed
  expect(received.match(/HTTP\/1\.1/g)).toHaveLength(1)
  // Where nothing was begun, it is told.
  const other = await dial(gateway)
  let answer = ''
  other.setEncoding('utf8').on('data', (text: string) => (answer += text))
  other.write('this is no request\r\n\r\n')
  await once(other, 'close')
  expect(answer).toContain('HTTP/1.1 400')
})

test('a broken stream is a failure in the metrics and in the log, in a session and outside', async () => {
  await using simulator = await SimulatorServer.start({ 'faults.kill': 1 })
  const logged: LoggedRequest[] = []
  await using gateway = await TestGateway.start({
    models: [{ name: 'sim', backends: [{ url: simulator.url }], maxTries: 1 }],
    onRequest: (request) => logged.push(request),
  })
  const { key } = await gateway.startSession()
  const body = { ...asked.chat.body, stream: true }
  for (const each of [key, adminKey]) expect((await gateway.ask(asked.chat.path, { body, key: each })).status).toBe(200)
  expect(logged).toMatchObject([
    { status: 200, outcome: 'failed', error: { code: expect.stringMatching(/^model_/) as string } },
    { status: 200, outcome: 'failed', error: {} },
  ])
  const { text } = await gateway.ask('/metrics')
  expect(text).toContain('millrace_gateway_requests_total{api="chat",model="sim",status="200",outcome="failed"} 2')
})

test.each([500, 503])('a gateway is not ready if its backend answers every request with %i', async (status) => {
  await using server = await answering(status, '<html>no</html>')
  const backends = [server.url]
  const found = await findModels({ backends, model: 'm', env: {}, signal: new AbortController().signal })
  await using gateway = await TestGateway.start(found)
  const asks = server.asks()
  const replies = await Promise.all(Array.from({ length: 20 }, () => gateway.ask('/ready', { key: null })))
  expect(new Set(replies.map((reply) => reply.status))).toEqual(new Set([503]))
  // The backend is asked again now and then, and not because somebody asks whether the gateway is ready.
  expect(server.asks() - asks).toBeLessThan(5)
})

test.each(apis)('%s answers with an error of its API if the key lookup fails', async (api) => {
  const faults: string[] = []
  await using gateway = await TestGateway.start({ onFault: ({ code }) => faults.push(code) })
  gateway.server.gateway.callerFor = () => {
    throw new Error('the disk is gone')
  }
  const { path, body } = asked[api]
  const reply = await gateway.ask(path, { body })
  expect(reply.status).toBe(500)
  expect(reply.body).toMatchObject({ error: { message: expect.any(String) as string } })
  expect(reply.text).not.toContain('the disk is gone')
  expect(faults).toEqual(['internal'])
})

/** With more than two sockets on one machine hold between them, which is a few megabytes. */
function answeringAtLength(): ReturnType<typeof answering> {
  const message = { role: 'assistant', content: 'x'.repeat(16 * 1024 * 1024) }
  const choices = [{ index: 0, message, finish_reason: 'stop' }]
  return answering(200, JSON.stringify({ id: 'long', object: 'chat.completion', choices }))
}

test('the timeouts of a gateway may be infinite', async () => {
  await using gateway = await TestGateway.start({ bounds: { maxStallMs: Infinity, maxUploadMs: Infinity } })
  expect((await gateway.ask('/v1/models')).status).toBe(200)
})

test('the connection of a client that does not read its export is closed', async () => {
  await using server = await answeringAtLength()
  const faults: unknown[] = []
  await using gateway = await TestGateway.start({
    models: [{ name: 'sim', backends: [{ url: server.url }] }],
    bounds: { maxStallMs: 1_000 },
    onFault: (error) => faults.push(error),
  })
  const { key } = await gateway.startSession()
  expect((await gateway.ask(asked.chat.path, { body: asked.chat.body, key })).status).toBe(200)
  const connections = async (): Promise<unknown> => {
    const { text } = await gateway.ask('/metrics')
    return /^millrace_gateway_connections (\d+)/m.exec(text)?.[1]
  }
  const before = await connections()
  const socket = await dial(gateway)
  socket.pause()
  socket.write(`GET /v1/export HTTP/1.1\r\nhost: here\r\n${authorization}\r\n\r\n`)
  await expect.poll(connections).not.toBe(before)
  await expect.poll(connections).toBe(before)
  expect(faults).toEqual([])
  socket.destroy()
})

test('an export waits for a free slot, which an aborted export releases', async () => {
  await using server = await answeringAtLength()
  await using gateway = await TestGateway.start({
    models: [{ name: 'sim', backends: [{ url: server.url }] }],
    bounds: { maxExports: 1 },
  })
  const { id, key } = await gateway.startSession()
  const other = await gateway.startSession()
  expect((await gateway.ask(asked.chat.path, { body: asked.chat.body, key })).status).toBe(200)
  const socket = await dial(gateway)
  socket.write(`GET /v1/export?session=${id} HTTP/1.1\r\nhost: here\r\n${authorization}\r\n\r\n`)
  await once(socket, 'data')
  socket.pause()
  let status: number | undefined
  const waiting = gateway.ask(`/v1/export?session=${other.id}`).then((reply) => (status = reply.status))
  for (let asks = 0; asks < 20; asks += 1) await gateway.ask('/v1/models')
  expect(status).toBeUndefined()
  socket.destroy()
  expect(await waiting).toBe(200)
})

test('an export that breaks, or that cannot read a session, is reported as a fault', async () => {
  await using server = await answeringAtLength()
  const faults: string[] = []
  await using gateway = await TestGateway.start({
    models: [{ name: 'sim', backends: [{ url: server.url }] }],
    onFault: ({ rawMessage }) => faults.push(rawMessage),
  })
  const sessions = await gateway.startSessions({ groupSize: 2 })
  for (const { key } of sessions) await gateway.ask(asked.chat.path, { body: asked.chat.body, key })
  const [first, second] = sessions.map(({ id }) => id)
  using database = new DatabaseSync(join(gateway.server.gateway.folder, runFiles.database))
  const whole = await gateway.ask('/v1/export')
  expect(whole.text.trimEnd().split('\n').at(-1)).toContain('"damagedSessions":0')

  const begun = await gateway.open('/v1/export', { method: 'GET' })
  // Most of the first session waits until it is taken, so the second is yet to be read.
  database.exec('ALTER TABLE reward RENAME TO elsewhere')
  await expect(begun.body.text()).rejects.toThrow()
  expect(faults).toEqual([expect.stringContaining('no such table')])
  database.exec('ALTER TABLE elsewhere RENAME TO reward')

  database.exec(`UPDATE node SET message = 'none' WHERE rollout = '${second}'`)
  const { status, text } = await gateway.ask('/v1/export')
  expect(status).toBe(200)
  expect(text.trimEnd().split('\n').slice(1)).toEqual([
    expect.stringContaining(`{"kind":"damaged","session":"${second}"`),
    expect.stringContaining('"sessions":2,"rows":1,"sideRows":0,"emptySessions":0,"damagedSessions":1'),
  ])
  expect(text).toContain(`{"kind":"interaction","session":"${first}"`)
  expect(faults.slice(1)).toEqual([expect.stringContaining(`message 0 of ${second} cannot be read`)])
})

test('an export reports its first damaged session and their number', async () => {
  const faults: string[] = []
  await using gateway = await TestGateway.start({ onFault: ({ rawMessage }) => faults.push(rawMessage) })
  const sessions = await gateway.startSessions({ groupSize: 5 })
  for (const { key } of sessions) await gateway.ask(asked.chat.path, { body: asked.chat.body, key })
  await gateway.ask('/v1/export')
  using database = new DatabaseSync(join(gateway.server.gateway.folder, runFiles.database))
  database.exec(`UPDATE node SET message = 'none' WHERE rollout <> '${sessions[0]?.id}'`)
  const { text } = await gateway.ask('/v1/export')
  expect(text).toContain('"sessions":5,"rows":1,"sideRows":0,"emptySessions":0,"damagedSessions":4')
  expect(faults).toEqual([
    expect.stringContaining(`message 0 of ${sessions[1]?.id} cannot be read`),
    expect.stringContaining('4 damaged sessions'),
  ])
})

test('the log records the duration of a request that is refused while its body arrives', async () => {
  const logged: LoggedRequest[] = []
  const bounds = { maxBodyBytes: 50 }
  await using gateway = await TestGateway.start({ onRequest: (request) => logged.push(request), bounds })
  const socket = await dial(gateway)
  const headers = `host: here\r\n${authorization}\r\nexpect: 100-continue\r\ntransfer-encoding: chunked`
  socket.write(`POST ${asked.chat.path} HTTP/1.1\r\n${headers}\r\n\r\n`)
  // The request has begun.
  expect(String(await once(socket, 'data'))).toContain('100 Continue')
  const chunk = `28\r\n${'['.repeat(40)}\r\n`
  socket.write(chunk)
  const startedAt = performance.now()
  await expect.poll(() => gateway.server.gateway.isClosed || performance.now() - startedAt > 20).toBe(true)
  socket.write(chunk)
  await expect.poll(() => logged.length).toBe(1)
  expect(logged[0]).toMatchObject({ status: 413, outcome: 'refused' })
  expect(logged[0]?.ms).toBeGreaterThanOrEqual(20)
  socket.destroy()
})

test('a client that disconnects while it starts a session causes no fault of the gateway', async () => {
  const faults: unknown[] = []
  await using gateway = await TestGateway.start({ onFault: (error) => faults.push(error) })
  const socket = await dial(gateway)
  socket.write(`POST /v1/sessions HTTP/1.1\r\nhost: x\r\n${authorization}\r\ncontent-length: 100\r\n\r\n{"task`)
  const metrics = async (): Promise<string> => (await gateway.ask('/metrics')).text
  await expect.poll(metrics).toMatch(/^millrace_gateway_body_bytes 6$/m)
  socket.destroy()
  await expect.poll(metrics).toMatch(/^millrace_gateway_body_bytes 0$/m)
  expect(faults).toEqual([])
})
