import { once } from 'node:events'
import { createServer, request, type ClientRequest, type IncomingMessage } from 'node:http'
import { connect, type AddressInfo, type Socket } from 'node:net'
import { setImmediate } from 'node:timers/promises'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { activeResources, leftSince } from '../../../test/support/kit/active-resources.ts'
import { HttpReply } from '../../endpoint/index.ts'

interface Asked {
  readonly reply: HttpReply
  readonly client: ClientRequest
}

/** A server whose replies the test writes by hand. */
async function replyServer(options: { api?: 'chat' | 'messages'; maxStallMs?: number } = {}) {
  const { api = 'chat', maxStallMs = 60_000 } = options
  const replies: HttpReply[] = []
  const sockets: Socket[] = []
  const server = createServer((_request, response) => {
    replies.push(new HttpReply(response, { api, requestId: 'req_1', maxStallMs }))
  })
    .on('connection', (socket) => sockets.push(socket))
    .listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  return {
    port,
    replies,
    sockets,
    async ask(): Promise<Asked> {
      const client = request({ port, host: '127.0.0.1', agent: false })
      client.on('error', () => {})
      client.end()
      const count = replies.length
      await expect.poll(() => replies.length).toBe(count + 1)
      return { client, reply: replies[count] as HttpReply }
    },
    connections: () => promisify(server.getConnections.bind(server))(),
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

async function answered(client: ClientRequest): Promise<IncomingMessage> {
  const [response] = (await once(client, 'response')) as [IncomingMessage]
  return response.setEncoding('utf8')
}

/** A connection on which nothing reads HTTP. */
async function rawClient(port: number) {
  const socket = connect(port, '127.0.0.1').setEncoding('utf8')
  await once(socket, 'connect')
  let text = ''
  socket.on('data', (piece: string) => (text += piece))
  return {
    write: (bytes: string) => socket.write(bytes),
    /** The bodies of the replies so far, as they came. */
    bodies: () => text.split(/HTTP\/1\.1 200 OK\r\n.*?\r\n\r\n/s).slice(1),
    async [Symbol.asyncDispose]() {
      const closed = socket.closed ? undefined : once(socket, 'close')
      socket.destroy()
      await closed
    },
  }
}

const nothing = (): void => {}
/** Two sockets on one machine hold a few megabytes between them. */
const moreThanBuffers = 'x'.repeat(32 * 1024 * 1024)

test('a whole reply has its length, its type and its id, and is sent once', async () => {
  await using server = await replyServer({ api: 'messages' })
  const { reply, client } = await server.ask()
  const response = answered(client)
  reply.whole(429, { 'retry-after': '3' }, '{"é":1}')
  reply.whole(200, {}, 'never')
  const { statusCode, headers } = await response
  expect(statusCode).toBe(429)
  expect(headers).toMatchObject({
    'content-type': 'application/json',
    'content-length': '8',
    'retry-after': '3',
    'x-request-id': 'req_1',
    'request-id': 'req_1',
  })
  expect((await (await response).toArray()).join('')).toBe('{"é":1}')
  // The end of a reply is no departure.
  expect(reply.isGone).toBe(false)
})

test('the head of a stream is sent first, and each piece when it is written', async () => {
  await using server = await replyServer()
  const { reply, client } = await server.ask()
  const response = answered(client)
  reply.beginStream({ 'x-own': 'yes' })
  const { headers } = await response
  expect(headers).toMatchObject({
    'content-type': 'text/event-stream; charset=utf-8',
    'cache-control': 'no-cache',
    'x-accel-buffering': 'no',
    'x-request-id': 'req_1',
    'x-own': 'yes',
  })
  const body = (await response)[Symbol.asyncIterator]() as AsyncIterator<string>
  for (const piece of ['data: 1\n\n', 'data: 2\n\n']) {
    expect(reply.write(piece, nothing)).toBe(true)
    expect((await body.next()).value).toBe(piece)
  }
  reply.endStream()
  expect((await body.next()).done).toBe(true)
})

test('a stream has correct chunk lengths, skips empty pieces, and keeps the connection', async () => {
  await using server = await replyServer()
  await using socket = await rawClient(server.port)
  for (const round of [1, 2]) {
    socket.write('GET / HTTP/1.1\r\nhost: here\r\n\r\n')
    await expect.poll(() => server.replies.length).toBe(round)
    const reply = server.replies[round - 1]
    reply?.beginStream({})
    for (const piece of ['data: é🙂\n\n', '', `data: ${'x'.repeat(20)}\n\n`])
      expect(reply?.write(piece, nothing)).toBe(true)
    reply?.endStream()
    const chunks = `e\r\ndata: é🙂\n\n\r\n1c\r\ndata: ${'x'.repeat(20)}\n\n\r\n0\r\n\r\n`
    await expect.poll(() => socket.bodies()).toEqual(Array.from({ length: round }, () => chunks))
  }
  expect(await server.connections()).toBe(1)
})

test('a stream waits for the stream of an earlier request on its connection', async () => {
  await using server = await replyServer()
  await using socket = await rawClient(server.port)
  const asked = 'GET / HTTP/1.1\r\nhost: here\r\n\r\n'
  socket.write(asked + asked)
  await expect.poll(() => server.replies.length).toBe(2)
  const [first, second] = server.replies
  let resumed = 0
  second?.beginStream({})
  expect(second?.write('b1', nothing)).toBe(true)
  expect(second?.write(moreThanBuffers, () => (resumed += 1))).toBe(false)
  first?.beginStream({})
  first?.write('a1', nothing)
  await expect.poll(() => socket.bodies()).toEqual(['2\r\na1\r\n'])
  expect(resumed).toBe(0)
  first?.endStream()
  await expect.poll(() => resumed).toBe(1)
  expect(second?.write('b2', nothing)).toBe(true)
  second?.endStream()
  const long = `${moreThanBuffers.length.toString(16)}\r\n${moreThanBuffers}\r\n`
  const bodies = ['2\r\na1\r\n0\r\n\r\n', `2\r\nb1\r\n${long}2\r\nb2\r\n0\r\n\r\n`]
  // Not by `toEqual`, which would show all of it.
  await expect.poll(() => JSON.stringify(socket.bodies()) === JSON.stringify(bodies)).toBe(true)
})

test('an HTTP/1.0 client gets the stream without chunks, ended by closing the connection', async () => {
  await using server = await replyServer()
  await using socket = await rawClient(server.port)
  socket.write('GET / HTTP/1.0\r\n\r\n')
  await expect.poll(() => server.replies.length).toBe(1)
  const [reply] = server.replies
  reply?.beginStream({})
  reply?.write('data: 1\n\n', nothing)
  reply?.endStream()
  await expect.poll(() => server.connections()).toBe(0)
  expect(socket.bodies()).toEqual(['data: 1\n\n'])
})

test('a client that disconnects is noticed at once, also by late listeners', async () => {
  await using server = await replyServer()
  const early = await server.ask()
  let departures = 0
  early.reply.onGone(() => (departures += 1))
  early.reply.beginStream({})
  early.client.destroy()
  await expect.poll(() => early.reply.isGone).toBe(true)
  expect(departures).toBe(1)
  expect(early.reply.write('data: into the void\n\n', nothing)).toBe(true)
  early.reply.endStream()

  const late = await server.ask()
  late.client.destroy()
  await expect.poll(() => late.reply.isGone).toBe(true)
  late.reply.whole(200, {}, '{}')
})

test('a client that does not read pauses the writer until it reads', async () => {
  await using server = await replyServer()
  const { reply, client } = await server.ask()
  const response = answered(client)
  reply.beginStream({})
  const body = await response
  body.pause()
  let resumed = 0
  expect(reply.write(moreThanBuffers, () => (resumed += 1))).toBe(false)
  expect(reply.write('and more', () => (resumed += 1))).toBe(false)
  // What it took of it has gone into the buffers of the kernel, and the rest waits.
  await setImmediate()
  expect(resumed).toBe(0)
  body.resume()
  await expect.poll(() => resumed).toBe(1)
  reply.endStream()
  await once(body, 'end')
})

test('the end of a stream does not resume its writer', async () => {
  await using server = await replyServer()
  const { reply, client } = await server.ask()
  const response = answered(client)
  reply.beginStream({})
  let resumed = 0
  expect(reply.write(moreThanBuffers, () => (resumed += 1))).toBe(false)
  reply.endStream()
  for await (const _piece of await response) expect(resumed).toBe(0)
  expect(resumed).toBe(0)
})

test('a half-closed client still gets the earlier output', async () => {
  await using server = await replyServer()
  const client = connect(server.port, '127.0.0.1')
  client.write('GET / HTTP/1.1\r\nhost: here\r\n\r\n')
  await expect.poll(() => server.replies.length).toBe(1)
  const [reply] = server.replies
  reply?.beginStream({})
  reply?.write(moreThanBuffers, nothing)
  const noticed = once(server.sockets[0] as Socket, 'end')
  client.end()
  await noticed
  reply?.write('too late', nothing)
  const received = Buffer.concat(await client.toArray()).toString()
  expect(received.endsWith(`${moreThanBuffers}\r\n`)).toBe(true)
  await expect.poll(() => reply?.isGone).toBe(true)
})

test.each([
  ['in the middle of a stream', (reply: HttpReply) => reply.write(moreThanBuffers, nothing)],
  [
    'at the end of a stream',
    (reply: HttpReply) => {
      reply.write(moreThanBuffers, nothing)
      reply.endStream()
    },
  ],
  ['with a whole reply', (reply: HttpReply) => reply.whole(200, {}, moreThanBuffers)],
])('a client that stops reading %s is disconnected, and leaves no timer', async (where, write) => {
  const before = activeResources()
  {
    await using server = await replyServer({ maxStallMs: 20 })
    const socket = connect(server.port, '127.0.0.1')
    socket.on('error', nothing)
    socket.pause()
    socket.write('GET / HTTP/1.1\r\nhost: here\r\n\r\n')
    await expect.poll(() => server.replies.length).toBe(1)
    const [reply] = server.replies
    if (!where.startsWith('with a whole')) reply?.beginStream({})
    if (reply) write(reply)
    await expect.poll(() => server.connections()).toBe(0)
    socket.destroy()
  }
  expect(await leftSince(before)).toEqual([])
})
