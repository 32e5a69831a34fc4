import { once } from 'node:events'
import { createServer, request, type ClientRequest, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { expect, test } from 'vitest'
import { ExportTurns } from './session-routes.ts'

/** Requests whose replies the test ends by hand. */
async function heldReplies() {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  return {
    async open(): Promise<{ client: ClientRequest; response: ServerResponse }> {
      const client = request({ port, host: '127.0.0.1', agent: false }, (reply) => reply.resume())
      client.on('error', () => {})
      client.end()
      const [, response] = (await once(server, 'request')) as [unknown, ServerResponse]
      return { client, response }
    },
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

test('an export waits until another has ended, or its client has left', async () => {
  await using replies = await heldReplies()
  const turns = new ExportTurns({ maxExports: 1, maxStallMs: Infinity })
  const order: string[] = []
  const begin = async (name: string) => {
    const { client, response } = await replies.open()
    const begun = turns.begin(response).then(() => order.push(name))
    return { client, response, begun }
  }
  const first = await begin('first')
  await first.begun
  const second = await begin('second')
  const leaving = await begin('leaving')
  const third = await begin('third')
  leaving.client.destroy()
  await expect(leaving.begun).rejects.toMatchObject({ code: 'cancelled' })
  expect(order).toEqual(['first'])
  first.response.end()
  await second.begun
  expect(order).toEqual(['first', 'second'])
  second.client.destroy()
  await third.begun
  expect(order).toEqual(['first', 'second', 'third'])
})

test('an export that waited too long gets 503 with a delay, and takes no turn', async () => {
  await using replies = await heldReplies()
  const turns = new ExportTurns({ maxExports: 1, maxStallMs: 2 })
  const first = await replies.open()
  await turns.begin(first.response)
  const late = await replies.open()
  await expect(turns.begin(late.response)).rejects.toMatchObject({
    code: 'overloaded',
    data: { status: 503, retryAfterMs: 1000 },
  })
  const ended = once(first.response, 'close')
  first.response.end()
  late.response.end()
  await ended
  await turns.begin((await replies.open()).response)
})
