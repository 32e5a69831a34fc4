import { describe, expect, test } from 'vitest'
import { CollectingSink } from '../../../test/support/inference/collecting-sink.ts'
import { ask, openBackend } from '../../../test/support/inference/open-backend.ts'
import type { TokenRecord } from '../../schema/index.ts'
import { apiPaths, body, get, post, saidIn, Stream } from '../../../test/support/simulator/ask.ts'
import { EmittedLog } from './emitted-log.ts'
import { SimulatorServer } from '../server/server.ts'
import { Simulator } from './simulator.ts'

const question = 'What is 17 * 3? End with `Answer: <number>`.'

const emitted = async (server: SimulatorServer, session: string) => {
  const { replies } = (await get(server, `/sim/emitted?session=${session}`)) as { replies: Record<string, unknown>[] }
  return replies
}

/** A record as the log would have it. */
function logged(tokens: TokenRecord | undefined) {
  return {
    promptIds: [...(tokens?.promptIds ?? [])],
    ids: [...(tokens?.ids ?? [])],
    logprobs: [...(tokens?.logprobs ?? [])],
    versions: tokens?.versionSpans ?? [{ from: 0, version: tokens?.version }],
  }
}

describe('the emitted log', () => {
  test.each([false, true])('equals the record of the client (stream: %s)', async (stream) => {
    await using server = await SimulatorServer.start({ imitate: 'millrace', recordEmitted: 10, weightVersion: '1' })
    await using client = openBackend(server.url, { stream })
    const { tokens, finishReason } = await client.send(ask({ captureTokens: true, sessionId: 'mine' }))
    await client.send(ask({ captureTokens: true, sessionId: 'another' }))
    expect(await emitted(server, 'mine')).toEqual([
      {
        session: 'mine',
        replyId: expect.stringMatching(/^chatcmpl-/),
        api: 'chat',
        finish: finishReason,
        ...logged(tokens),
      },
    ])
  })

  test('holds the weight version of each token when it changes during a reply', async () => {
    await using server = await SimulatorServer.start({
      recordEmitted: 10,
      imitate: 'millrace',
      weightVersion: '1',
      reasoning: true,
      tokensPerSecond: 30,
      spread: 0,
    })
    await using client = openBackend(server.url, { stream: true })
    const sink = new CollectingSink(({ deltas }) => {
      if (deltas.length > 0) server.simulator.change({ weightVersion: '2' })
      return true
    })
    const { tokens } = await client.send(ask({ captureTokens: true, sessionId: 'mine', sink }))
    expect(tokens?.versionSpans).toMatchObject([{ from: 0, version: '1' }, { version: '2' }])
    expect(await emitted(server, 'mine')).toMatchObject([logged(tokens)])
  })

  test('of an aborted reply holds its beginning', async () => {
    await using server = await SimulatorServer.start({
      imitate: 'millrace',
      recordEmitted: 10,
      weightVersion: '1',
      tokensPerSecond: 0.01,
    })
    const stream = await Stream.open(server, apiPaths.chat, body('chat', question), { 'x-session-id': 'mine' })
    await stream.until((events) => saidIn(events) === 'Answer')
    await post(server, '/abort_requests', {})
    await stream.rest()
    expect(await emitted(server, 'mine')).toMatchObject([
      { finish: 'abort', ids: [expect.any(Number)], versions: [{ from: 0, version: '1' }] },
    ])
  })

  test('of a client that disconnected holds the tokens sent until then', async () => {
    await using server = await SimulatorServer.start({ recordEmitted: 10, tokensPerSecond: 0.01 })
    const stream = await Stream.open(server, apiPaths.messages, body('messages', question), { 'x-session-id': 'gone' })
    await stream.until((events) => saidIn(events) === 'Answer')
    stream.abort()
    await expect.poll(() => server.stats.inFlight).toBe(0)
    expect(await emitted(server, 'gone')).toMatchObject([{ api: 'messages', finish: null, ids: [expect.any(Number)] }])
  })

  test('is off by default and never exceeds the configured number of replies', async () => {
    await using simulator = new Simulator()
    await simulator.send(ask())
    expect(simulator.emitted()).toEqual({ replies: [], dropped: 0 })
    simulator.change({ recordEmitted: 2 })
    for (const sessionId of ['a', 'b', 'c']) {
      const { tokens } = await simulator.send(ask({ sessionId }))
      expect(tokens).toBeUndefined()
    }
    const { replies, dropped } = simulator.emitted()
    expect(replies.map(({ session }) => session)).toEqual(['b', 'c'])
    expect(dropped).toBe(1)
  })
})

test('the log returns the oldest reply first, on every read', () => {
  const log = new EmittedLog()
  const tokens = { ids: Int32Array.of(1, 2), logprobs: Float32Array.of(-1, -2) }
  for (let index = 0; index < 50; index += 1) {
    const session = `s${index % 2}`
    log.add({ session, replyId: String(index), api: 'chat', finish: 'stop', versions: [], tokens, count: 1 }, 20)
  }
  const names = () => log.list('s1').map(({ replyId }) => replyId)
  expect(names()).toEqual(['31', '33', '35', '37', '39', '41', '43', '45', '47', '49'])
  expect(names()).toEqual(names())
  expect(log.list()[0]).toMatchObject({ replyId: '30', ids: [1], logprobs: [-1] })
  expect(log.dropped).toBe(30)
})
