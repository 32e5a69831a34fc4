import { once } from 'node:events'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { expect, test } from 'vitest'
import { fetch } from 'undici'
import { boundedResponse } from './http-transport.ts'

const maxBytes = 10_000

/** What a server sends that is answered by `write`, read with the bound. */
async function read(status: number, type: string, write: (response: ServerResponse) => void) {
  const cut = Promise.withResolvers<void>()
  const server = createServer((_request, response) => {
    response.once('close', cut.resolve)
    response.writeHead(status, { 'content-type': type })
    write(response)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  try {
    const { port } = server.address() as AddressInfo
    const response = boundedResponse(await fetch(`http://127.0.0.1:${port}`), maxBytes)
    const text = await response.text().catch((error: unknown) => String(error))
    // Also one that has not come to its end: nobody reads on.
    await cut.promise
    return { status: response.status, type: response.headers.get('content-type'), text }
  } finally {
    server.closeAllConnections()
    server.close()
  }
}

/** Until nobody takes any more. */
function flood(response: ServerResponse, piece: string): void {
  const go = (): void => {
    while (!response.destroyed && response.write(piece));
    if (!response.destroyed) response.once('drain', go)
  }
  go()
}

test('a reply within the limit is returned unchanged', async () => {
  const text = JSON.stringify('x'.repeat(maxBytes - 2))
  expect(await read(200, 'application/json', (response) => response.end(text))).toEqual({
    status: 200,
    type: 'application/json',
    text,
  })
})

test.each(['application/json', 'text/event-stream'])('an endless reply is aborted (%s)', async (type) => {
  const { text } = await read(200, type, (response) => flood(response, 'x'.repeat(1_000)))
  expect(text).toContain(`the data from the server is larger than ${maxBytes} bytes`)
})

test.each(['\n', '\r\n'])('a stream has no size limit, but each of its events has (ended by %j)', async (end) => {
  const event = `data: ${'x'.repeat(900)}${end}data: y${end}${end}`
  // Cut up anyhow: an empty line is one wherever the pieces end.
  const whole = event.repeat(100)
  const good = await read(200, 'text/event-stream', (response) => {
    for (let at = 0; at < whole.length; at += 7) response.write(whole.slice(at, at + 7))
    response.end()
  })
  expect(good.text).toBe(whole)
  const lines = `data: ${'x'.repeat(900)}${end}`
  const { text } = await read(200, 'text/event-stream', (response) => flood(response, lines))
  expect(text).toContain('larger than')
})

test('a page that explains a status is truncated', async () => {
  const { status, text } = await read(500, 'text/html', (response) => flood(response, 'no '.repeat(10_000)))
  expect(status).toBe(500)
  expect(text).toMatch(/^(no )+n?o?$/)
  expect(text.length).toBeLessThanOrEqual(64 * 1024)
})
