import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { expect, test } from 'vitest'
import { adminKey, TestGateway } from '../support/gateway/test-gateway.ts'
import { ScriptedServer, sendJson } from '../support/inference/scripted-server.ts'

/** Less than a HTTP server waits for replies that are on their way. */
const notLong = { timeout: 8_000 }

test('closing a gateway does not wait for idle connections', notLong, async () => {
  await using gateway = await TestGateway.start()
  const sockets: Socket[] = []
  for (const _each of ['silent', 'idle', 'half']) {
    const socket = connect(Number(new URL(gateway.url).port), '127.0.0.1').on('error', () => undefined)
    await once(socket, 'connect')
    sockets.push(socket)
  }
  const [, idle, half] = sockets
  idle?.write('GET /health HTTP/1.1\r\nhost: x\r\n\r\n')
  half?.write('POST /v1/chat/completions HTTP/1.1\r\n')
  await once(idle as Socket, 'data')
  const closed = Promise.all(sockets.map((socket) => once(socket, 'close')))
  await gateway.server.drain()
  await gateway.server.close()
  await closed
  expect(sockets.map(({ destroyed }) => destroyed)).toEqual([true, true, true])
})

test('a request that arrived just before closing is refused with 503, not cut off', notLong, async () => {
  await using gateway = await TestGateway.start()
  await gateway.server.drain()
  // The kernel has all of these before the loop, which takes one connection a turn, has seen them.
  const sockets = Array.from({ length: 100 }, () => {
    const socket = connect(Number(new URL(gateway.url).port), '127.0.0.1')
    socket.write(saying('Hello?'))
    return socket
  })
  const replies = sockets.map(firstLineOn)
  await Promise.all(sockets.map((socket) => once(socket, 'connect')))
  await gateway.server.close()
  expect(new Set(await Promise.all(replies))).toEqual(new Set(['HTTP/1.1 503 Service Unavailable']))
})

test('closing a gateway waits until a slow client has read all replies', notLong, async () => {
  // Two sockets on one machine hold a few megabytes between them.
  const contents = ['x'.repeat(24 * 1024 * 1024), 'second', 'third']
  await using backend = await ScriptedServer.start((response, { body }) => {
    const content = contents[Number(/number (\d)/.exec(body)?.[1])]
    sendJson(response, {
      id: 'chatcmpl-1',
      choices: [{ message: { role: 'assistant', content }, finish_reason: 'stop' }],
    })
  })
  await using gateway = await TestGateway.start({ models: [{ name: 'sim', backends: [{ url: backend.url }] }] })
  const socket = connect(Number(new URL(gateway.url).port), '127.0.0.1')
  socket.write(contents.map((_content, index) => saying(`number ${index}`)).join(''))
  await backend.received(contents.length)
  await gateway.server.drain()
  const closing = gateway.server.close()
  let received = ''
  for await (const bytes of socket) received += String(bytes)
  await closing
  const replies = received.split('HTTP/1.1 200 OK').slice(1)
  expect(replies.map((reply, index) => reply.includes(`"${contents[index]}"`))).toEqual([true, true, true])
})

function saying(content: string): string {
  const body = JSON.stringify({ model: 'sim', messages: [{ role: 'user', content }] })
  return `POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-api-key: ${adminKey}\r\ncontent-length: ${body.length}\r\n\r\n${body}`
}

/** The first line of what a server says until it closes, or how the connection failed. */
async function firstLineOn(socket: Socket): Promise<string> {
  let received = ''
  try {
    for await (const bytes of socket) received += String(bytes)
  } catch (error) {
    return String(error)
  }
  return received.slice(0, received.indexOf('\r\n'))
}
