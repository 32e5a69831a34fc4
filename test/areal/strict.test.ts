import { expect, test } from 'vitest'
import { ArealGateway, question } from '../support/areal/areal-gateway.ts'
import { TestGateway } from '../support/gateway/test-gateway.ts'
import { ScriptedServer, sendJson } from '../support/inference/scripted-server.ts'

/** The same fault with AReaL's own statuses and with honest ones. */
const statuses = [
  ['no JSON', '{', 400, 400],
  ['a list', '[]', 500, 400],
  ['no messages', {}, 500, 400],
  ['a bad field', { messages: question, n: 0 }, 500, 400],
] as const

test.each(statuses)('a request with %s', async (_, body, own, honest) => {
  for (const [strict, status] of [
    [false, own],
    [true, honest],
  ] as const) {
    await using areal = await ArealGateway.start([{}], { areal: { strict } })
    const session = await areal.startOne()
    const reply = await areal.post('/chat/completions', body, session.key)
    expect([reply.status, reply.body]).toEqual([status, { detail: expect.any(String) }])
    // OpenAI's clients would send it again and again.
    if (reply.status === 500) expect(reply.headers['x-should-retry']).toBe('false')
  }
})

test.each([
  [429, 500, 429],
  [503, 500, 503],
  [500, 500, 500],
])('a backend that answers %i', async (answer, own, honest) => {
  await using backend = await ScriptedServer.start((response) => {
    sendJson(response, { error: { message: 'no' } }, answer)
  })
  const models = [{ name: 'm', maxTries: 1, maxWaitMs: 1, maxRateLimitWaitMs: 1, backends: [{ url: backend.url }] }]
  for (const [strict, status] of [
    [false, own],
    [true, honest],
  ] as const) {
    await using gateway = await TestGateway.start({ areal: { strict }, models })
    const { body } = await gateway.ask('/rl/start_session', { body: { task_id: 't' } })
    const [session] = body['sessions'] as { session_api_key: string }[]
    const key = session?.session_api_key ?? ''
    const reply = await gateway.ask('/chat/completions', { key, body: { messages: question } })
    expect([reply.status, reply.body]).toEqual([status, { detail: expect.any(String) }])
  }
})

test('an ended session, an unknown reply, an unknown session and an unknown style', async () => {
  const expected = {
    false: [401, 400, 200, 500],
    true: [410, 404, 404, 400],
  } as const
  for (const strict of [false, true]) {
    await using areal = await ArealGateway.start([{}], { areal: { strict } })
    const session = await areal.startOne()
    await areal.converse(session, 1)
    const unknownReply = await areal.reward(session, 1, 'chatcmpl-none')
    const unknownStyle = await areal.export([session], { style: 'none' })
    await areal.reward(session, 1)
    await areal.export([session])
    const ended = await areal.chat(session)
    const unknownSession = await areal.export([session])
    const found = [ended, unknownReply, unknownSession, unknownStyle].map(({ status }) => status)
    expect(found).toEqual(expected[`${strict}`])
  }
})
