import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { describe, expect, test } from 'vitest'
import { SimulatorServer } from 'millrace'
import { adminKey, apis, asked, TestGateway } from '../support/gateway/test-gateway.ts'

const errorText = (message: string): unknown =>
  expect.objectContaining({ message: expect.stringContaining(message) as string })

test.each(apis)('%s names the limit that a body exceeds', async (api) => {
  await using gateway = await TestGateway.start({ bounds: { maxBodyBytes: 4096, maxJsonDepth: 8 } })
  const { path, body } = asked[api]
  const large = await gateway.ask(path, { body: { ...body, note: 'x'.repeat(5000) } })
  expect(large).toMatchObject({ status: 413, body: { error: errorText('4096 bytes') } })
  const deep = await gateway.ask(path, { body: `{"model":"sim","note":${'['.repeat(9)}${']'.repeat(9)}}` })
  expect(deep).toMatchObject({ status: 400, body: { error: errorText('8 levels') } })
  expect((await gateway.ask(path, { body })).status).toBe(200)
})

test('all bodies together have a limit, and a finished request frees its share', async () => {
  await using simulator = await SimulatorServer.start({ 'faults.hang': 1 })
  await using gateway = await TestGateway.start({
    models: [{ name: 'sim', backends: [{ url: simulator.url }] }],
    bounds: { maxBodiesBytes: 1000 },
  })
  const { path, body } = asked.chat
  const large = { ...body, user: 'x'.repeat(600) }
  const hung = gateway.open(path, { body: large })
  hung.catch(() => {})
  await expect.poll(() => simulator.stats.inFlight).toBe(1)
  const refused = await gateway.ask(path, { body: large })
  expect(refused).toMatchObject({ status: 503, body: { error: errorText('try again') } })
  expect(refused.headers['retry-after']).toBe('1')
  expect(await gateway.ask('/metrics')).toMatchObject({
    text: expect.stringMatching(/^millrace_gateway_body_bytes [67]\d\d$/m) as string,
  })
})

test('headers have a size limit', async () => {
  await using gateway = await TestGateway.start()
  const reply = await gateway.ask(asked.chat.path, { body: asked.chat.body, headers: { 'x-much': 'y'.repeat(17_000) } })
  expect(reply).toMatchObject({ status: 431, body: { error: errorText('16384 bytes') } })
})

test('bytes that are not HTTP are refused with 400', async () => {
  await using gateway = await TestGateway.start()
  expect(await exchange(gateway.url, 'is this an agent?\r\n\r\n')).toContain('HTTP/1.1 400 ')
})

test('a body that is not received in time is refused with 408 and logged', async () => {
  const logged: unknown[] = []
  await using gateway = await TestGateway.start({
    bounds: { maxUploadMs: 50 },
    onRequest: (request) => logged.push(request),
  })
  const head = `POST /v1/messages HTTP/1.1\r\nhost: here\r\nx-api-key: ${adminKey}\r\ncontent-length: 100\r\n\r\n{"model"`
  const text = await exchange(gateway.url, head)
  expect(text).toContain('HTTP/1.1 408 ')
  expect(JSON.parse(text.slice(text.indexOf('\r\n\r\n')))).toMatchObject({ type: 'error', error: errorText('50 ms') })
  expect(logged).toMatchObject([{ api: 'messages', status: 408, outcome: 'refused', error: errorText('50 ms') }])
})

test('a body with invalid chunks is refused with 400 and logged', async () => {
  const logged: unknown[] = []
  await using gateway = await TestGateway.start({ onRequest: (request) => logged.push(request) })
  const head = `POST /v1/messages HTTP/1.1\r\nhost: here\r\nx-api-key: ${adminKey}\r\ntransfer-encoding: chunked\r\n\r\n`
  expect(await exchange(gateway.url, `${head}no length\r\n`)).toContain('HTTP/1.1 400 ')
  expect(logged).toMatchObject([{ api: 'messages', status: 400, outcome: 'refused' }])
})

test.each([
  ['hangs up', (socket: Socket) => socket.end(), { status: 400, outcome: 'refused', error: errorText('ended before') }],
  ['is lost', (socket: Socket) => socket.resetAndDestroy(), { status: 499, outcome: 'abandoned' }],
])('a request is logged if its client %s while it sends', async (_how, leave, line) => {
  const logged: unknown[] = []
  await using gateway = await TestGateway.start({ onRequest: (request) => logged.push(request) })
  const { hostname, port } = new URL(gateway.url)
  const socket = connect({ port: Number(port), host: hostname })
  socket.write(`POST /v1/messages HTTP/1.1\r\nhost: here\r\nx-api-key: ${adminKey}\r\ncontent-length: 9\r\n\r\n{"a"`)
  await expect.poll(async () => (await gateway.ask('/metrics')).text).toMatch(/^millrace_gateway_body_bytes 4$/m)
  leave(socket)
  await expect.poll(() => logged).toMatchObject([{ api: 'messages', ...line }])
})

describe('a client that keeps sending after its body timed out', () => {
  /** A client that was told. It does not hang up itself. */
  async function late(gateway: TestGateway, key: string, length: number, start: string): Promise<Socket> {
    const { hostname, port } = new URL(gateway.url)
    const socket = connect({ port: Number(port), host: hostname, allowHalfOpen: true }).on('error', () => undefined)
    const { path } = asked.chat
    socket.write(`POST ${path} HTTP/1.1\r\nhost: x\r\nx-api-key: ${key}\r\ncontent-length: ${length}\r\n\r\n${start}`)
    const [told] = (await once(socket, 'data')) as [Buffer]
    expect(String(told)).toContain('HTTP/1.1 408 ')
    return socket
  }

  async function sendUntilClosed(socket: Socket): Promise<void> {
    const sending = setInterval(() => socket.write(' '), 20)
    // However it is closed: `once` would fail where that is by a reset.
    await new Promise((resolve) => socket.once('close', resolve))
    clearInterval(sending)
  }

  test('takes up no memory, and its connection is closed', async () => {
    await using gateway = await TestGateway.start({ bounds: { maxUploadMs: 50 } })
    const socket = await late(gateway, adminKey, 1e6, '{"model":')
    expect((await gateway.ask('/metrics')).text).toMatch(/^millrace_gateway_body_bytes 0$/m)
    await sendUntilClosed(socket)
  })

  test('gets no reply, and nothing is recorded', async () => {
    await using gateway = await TestGateway.start({ bounds: { maxUploadMs: 50 } })
    const { id, key } = await gateway.startSession()
    const body = JSON.stringify(asked.chat.body)
    const socket = await late(gateway, key, body.length, body.slice(0, 5))
    socket.write(body.slice(5))
    await sendUntilClosed(socket)
    const { body: session } = await gateway.ask(`/v1/sessions/${id}`)
    expect(session).toMatchObject({ interactions: 0, discarded: 0, used: { requests: 0 } })
  })
})

test('a valid request id of the client is kept, and an invalid one is replaced', async () => {
  await using gateway = await TestGateway.start()
  const { path, body } = asked.messages
  const idOf = async (given: string): Promise<unknown> =>
    (await gateway.ask(path, { body, headers: { 'x-request-id': given } })).headers['request-id']
  expect(await idOf('my-request.1')).toBe('my-request.1')
  expect(await idOf('not so good')).toMatch(/^req_/)
  expect(await idOf('x'.repeat(200))).toMatch(/^req_/)
})

/** Sends bytes and reads to the end of the connection. */
async function exchange(url: string, text: string): Promise<string> {
  const { hostname, port } = new URL(url)
  const socket: Socket = connect(Number(port), hostname)
  socket.write(text)
  let answer = ''
  socket.setEncoding('utf8').on('data', (part: string) => (answer += part))
  await once(socket, 'end')
  socket.end()
  return answer
}
