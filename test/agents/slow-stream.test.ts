import { once } from 'node:events'
import { request } from 'node:http'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { defineEnvironment, z } from 'millrace'
import { calls } from 'millrace/testing'
import { expect, test } from 'vitest'
import { TestServer } from '../support/serve/test-server.ts'

const lookup = defineEnvironment({
  name: 'lookup',
  task: z.object({}),
  tasks: () => [],
  prompt: () => 'Look it up.',
  tools: { find: { parameters: z.object({ name: z.string() }), run: ({ name }) => name.length } },
  reward: () => 1,
})

/** More than the buffers of a connection hold. */
const long = 'x'.repeat(16 * 1024 * 1024)

test('a service that fails while a client takes nothing of its stream leaves no unhandled rejection', async () => {
  const unhandled: unknown[] = []
  const note = (reason: unknown): void => void unhandled.push(reason)
  process.on('unhandledRejection', note)
  using ends = new DisposableStack()
  ends.defer(() => process.off('unhandledRejection', note))
  const isLast = Promise.withResolvers<void>()
  const script = async ({ messages }: { readonly messages: readonly unknown[] }) => {
    // The first turn fills the connection, and the next ones leave the stream at a chunk that nobody takes.
    if (messages.length < 8) return calls({ find: { name: messages.length === 1 ? long : 'it' } })
    isLast.resolve()
    return await new Promise<never>(() => {})
  }
  await using server = await TestServer.start(script, { environment: lookup })
  const asked = request(`${server.httpServer.url}/v1/responses`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
  })
  ends.defer(() => asked.destroy())
  asked.on('error', () => {})
  asked.end(JSON.stringify({ model: 'any', input: 'Go.', stream: true }))
  await once(asked, 'response')
  await isLast.promise
  await server.service.close()
  for (let turn = 0; turn < 3; turn += 1) await nextTurn()
  expect(unhandled).toEqual([])
})
