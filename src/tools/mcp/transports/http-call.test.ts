import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Agent } from 'undici'
import { expect, test } from 'vitest'
import { activeResources, leftSince } from '../../../../test/support/kit/active-resources.ts'
import { ArraySet } from '../../../kit/index.ts'
import { HttpCall, HttpReply, type ReplyEnd } from './http-call.ts'

test('a call with an open stream stays with its link, which ends it; it is sent once only', async () => {
  const before = activeResources()
  const lingering = new ArraySet<HttpCall>()
  const sent: string[] = []
  const call = new HttpCall({
    id: 1,
    post: () => sent.push('post'),
    resume: () => sent.push('resume'),
    onMessage: () => {},
    onFailure: () => sent.push('failure'),
    lingering,
  })
  expect(call.isSent).toBe(false)
  call.release()
  call.release()
  expect([...lingering]).toEqual([call])
  for (const each of lingering) each.abort()
  call.abort()
  expect(lingering.size).toBe(0)
  expect(sent).toEqual(['post'])
  expect(await leftSince(before)).toEqual([])
})

/** How the reading of a reply with this text ends. */
async function endOf(type: string, body: string): Promise<ReplyEnd> {
  await using server = createServer((_request, response) => response.writeHead(200, { 'content-type': type }).end(body))
  await once(server.listen(0, '127.0.0.1'), 'listening')
  const agent = new Agent()
  const { promise, resolve } = Promise.withResolvers<ReplyEnd>()
  const reply = new HttpReply({ id: 1, maxBytes: 100, onMessage: () => {}, onEnd: resolve })
  const { port } = server.address() as AddressInfo
  agent.dispatch({ origin: `http://127.0.0.1:${port}`, path: '/', method: 'POST', body: '{}' }, reply)
  const end = await promise
  await agent.destroy()
  return end
}

const answer = JSON.stringify({ jsonrpc: '2.0', id: 1, result: {} })
const line = `data: ${'x'.repeat(50)}\n`

test.each([
  ['application/json', answer],
  ['text/event-stream', `: hello\n\nevent: message\ndata: ${answer}\n\n`],
])('a reply of type %s ends the call as answered', async (type, body) => {
  expect(await endOf(type, body)).toEqual({ kind: 'answered' })
})

test.each([
  ['application/json', 'x'.repeat(101)],
  ['text/event-stream', `data: ${'x'.repeat(101)}\n\n`],
  ['text/event-stream', `${line}${line}\n`],
])('a reply of type %s is refused if its body, a line or an event is too large', async (type, body) => {
  expect(await endOf(type, body)).toMatchObject({
    kind: 'failed',
    failure: { kind: 'refused', mayHaveRun: true, cause: { message: expect.stringContaining('100 bytes') } },
  })
})
