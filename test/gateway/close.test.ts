import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { expect, test } from 'vitest'
import { TestGateway } from './_test-gateway.ts'

/** Less than a door waits for replies that are on their way. */
const notLong = { timeout: 8_000 }

test('a gateway that closes does not wait for connections on which nothing is asked', notLong, async () => {
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
