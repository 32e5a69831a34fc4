import { once } from 'node:events'
import { createServer, type IncomingHttpHeaders } from 'node:http'
import type { AddressInfo } from 'node:net'
import { describe, expect, test } from 'vitest'
import { asked, TestGateway } from '../support/gateway/test-gateway.ts'

/** A backend that answers everything and remembers the headers of what it was asked. */
class EchoBackend implements AsyncDisposable {
  readonly seen: IncomingHttpHeaders[] = []
  isDown = false
  readonly #server = createServer((request, response) => {
    request.resume()
    request.on('end', () => {
      if (this.isDown) {
        response.destroy()
        return
      }
      this.seen.push(request.headers)
      response.writeHead(200, { 'content-type': 'application/json' }).end(
        JSON.stringify({
          id: 'r',
          object: 'chat.completion',
          choices: [{ index: 0, message: { role: 'assistant', content: 'hi' }, finish_reason: 'stop' }],
          usage: { prompt_tokens: 5, completion_tokens: 1 },
        }),
      )
    })
  })

  static async start(): Promise<EchoBackend> {
    const backend = new EchoBackend()
    backend.#server.listen(0, '127.0.0.1')
    await once(backend.#server, 'listening')
    return backend
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/v1`
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections()
    this.#server.close()
    await once(this.#server, 'close')
  }
}

const ascending = (counts: readonly number[]): number[] => counts.toSorted((one, other) => one - other)

async function openFleet(size: number) {
  const ends = new AsyncDisposableStack()
  const backends: EchoBackend[] = []
  for (let index = 0; index < size; index += 1) backends.push(ends.use(await EchoBackend.start()))
  const models = [{ name: 'sim', backends: backends.map(({ url }) => ({ url })) }]
  const gateway = ends.use(await TestGateway.start({ models }))
  const ask = async (headers: Record<string, string> = {}): Promise<number> => {
    const { path, body } = asked.chat
    return (await gateway.ask(path, { body, headers })).status
  }
  return {
    backends,
    gateway,
    ask,
    counts: () => backends.map(({ seen }) => seen.length),
    [Symbol.asyncDispose]: () => ends.disposeAsync(),
  }
}

describe('requests of an admin without a session', () => {
  test('spread over all backends: they are not all pinned to one', async () => {
    await using fleet = await openFleet(4)
    for (let request = 0; request < 40; request += 1) expect(await fleet.ask()).toBe(200)
    expect(fleet.counts()).toEqual([10, 10, 10, 10])
  })

  test.each(['x-session-id', 'x-smg-routing-key'])(
    'with the same %s meet the same backend, which gets it',
    async (name) => {
      await using fleet = await openFleet(4)
      for (let request = 0; request < 8; request += 1) {
        expect(await fleet.ask({ [name]: 'mine' })).toBe(200)
        expect(await fleet.ask({ [name]: 'yours' })).toBe(200)
      }
      expect(ascending(fleet.counts())).toEqual([0, 0, 8, 8])
      const keys = fleet.backends.map(({ seen }) => new Set(seen.map((headers) => headers['x-smg-routing-key'])))
      expect(ascending(keys.map((each) => each.size))).toEqual([0, 0, 1, 1])
      for (const { seen } of fleet.backends) {
        for (const headers of seen) expect(headers['x-session-id']).toBe(headers['x-smg-routing-key'])
      }
    },
  )
})

test('a session keeps its backend, whatever key its client sends, and moves when the backend dies', async () => {
  await using fleet = await openFleet(3)
  const session = await fleet.gateway.startSession()
  const ask = async (content: string): Promise<number> => {
    const body = { model: 'sim', messages: [{ role: 'user', content }] }
    const headers = { 'x-session-id': `key of ${content}` }
    return (await fleet.gateway.ask(asked.chat.path, { key: session.key, body, headers })).status
  }
  for (const word of ['one', 'two', 'three', 'four']) expect(await ask(word)).toBe(200)
  expect(ascending(fleet.counts())).toEqual([0, 0, 4])
  const home = fleet.backends.find(({ seen }) => seen.length > 0)
  if (!home) throw new Error('a backend was asked')
  expect(home.seen.every((headers) => headers['x-session-id'] === session.id)).toBe(true)
  home.isDown = true
  for (const word of ['five', 'six']) expect(await ask(word)).toBe(200)
  expect(ascending(fleet.counts())).toEqual([0, 2, 4])
})
