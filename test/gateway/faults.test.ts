import { expect, test } from 'vitest'
import { SimulatorServer } from '../../src/simulator/index.ts'
import type { ApiName } from '../../src/schema/index.ts'
import { activeResources, leftSince } from '../../src/kit/_testing/active-resources.ts'
import { checkError, checkStream } from './_stream-check.ts'
import { Talk } from './_talk.ts'
import { TestGateway } from './_test-gateway.ts'
import { emittedIn, samplesOf, type SampleRow } from './_truth.ts'
import { voices } from './_voices.ts'

/** What can go wrong with a reply that has begun, and what its sample is then recorded as. */
const faults = {
  kill: 'truncated',
  quietEnd: 'truncated',
  malformed: 'failed',
  stall: 'failed',
  midstreamError: 'failed',
} as const

type Fault = keyof typeof faults

/** Client and backend speak the same API, or not. */
const pairs: readonly { readonly api: ApiName; readonly upstream: ApiName }[] = [
  { api: 'chat', upstream: 'chat' },
  { api: 'responses', upstream: 'responses' },
  { api: 'messages', upstream: 'messages' },
  { api: 'responses', upstream: 'chat' },
  { api: 'messages', upstream: 'chat' },
  { api: 'chat', upstream: 'messages' },
]

/** A gateway with a model for each fault in each API, and one for each API that is well. */
async function faultyGateway(simulator: SimulatorServer): Promise<TestGateway> {
  const names = [...Object.keys(faults), 'hang']
  const models = (['chat', 'responses', 'messages'] as const).flatMap((api) =>
    names.map((fault) => ({
      name: `${api}-${fault}`,
      upstreamName: `fault:${fault}`,
      api,
      backends: [{ url: simulator.url }],
      maxTries: 1,
      // No fault but these two takes its time.
      ...(fault === 'stall' && { idleTimeoutMs: 300 }),
      ...(fault === 'stall' || fault === 'hang' ? { requestTimeoutMs: 1000 } : {}),
    })),
  )
  return await TestGateway.start({ models })
}

test.each(pairs)('$api over $upstream: a reply that breaks is never taken for a complete one', async (pair) => {
  const before = activeResources()
  {
    await using simulator = await SimulatorServer.start({ recordEmitted: 100, reasoning: true })
    await using gateway = await faultyGateway(simulator)
    await Promise.all(
      (Object.keys(faults) as Fault[]).flatMap((fault) =>
        [true, false].map((stream) => expectBroken({ simulator, gateway, pair, fault, stream })),
      ),
    )
    expect(gateway.server.gateway.status()).toMatchObject({ running: 0, interactions: { complete: 0, failed: 10 } })
  }
  expect(await leftSince(before)).toEqual([])
})

interface BrokenCase {
  readonly simulator: SimulatorServer
  readonly gateway: TestGateway
  readonly pair: { readonly api: ApiName; readonly upstream: ApiName }
  readonly fault: Fault
  readonly stream: boolean
}

async function expectBroken({ simulator, gateway, pair, fault, stream }: BrokenCase): Promise<void> {
  const { api, upstream } = pair
  const session = await gateway.startSession()
  const talk = new Talk(gateway, session, voices[api], { model: `${upstream}-${fault}` })
  talk.user('What is the capital of nowhere?')
  const { statusCode, body } = await talk.send({ stream })
  const text = await body.text()
  const what = `${fault}, ${stream ? 'stream' : 'whole'}: ${text}`
  if (stream) {
    expect(statusCode, what).toBe(200)
    expect(checkStream(api, text, api === upstream), what).toBe('error')
  } else {
    checkError(api, statusCode, text)
    expect(statusCode, what).toBeGreaterThanOrEqual(500)
  }
  // What had been heard of a stream is kept, and as what it is. Of a whole reply nothing was.
  const { body: ended } = await gateway.ask(`/v1/sessions/${session.id}/end`, { method: 'POST' })
  expect(ended).toMatchObject({ interactions: 0, discarded: stream ? 1 : 0, alarms: ['nothing_captured'] })
  const rows = await samplesOf(gateway, session.id)
  expect(rows.map(({ discarded, finishReason }) => ({ discarded, finishReason }))).toEqual(
    stream ? [{ discarded: faults[fault], finishReason: null }] : [],
  )
  const [emitted] = await emittedIn(simulator, session.id)
  for (const row of rows) {
    expect(wordsOf(row).length).toBeGreaterThan(0)
    if (upstream === 'chat') expect(emitted?.ids.slice(0, row.ids?.length)).toEqual(Array.from(row.ids ?? []))
  }
}

function wordsOf({ messages }: SampleRow): string {
  const last = messages.at(-1)
  return last?.role === 'assistant' ? `${last.reasoning_content ?? ''}${last.content ?? ''}` : ''
}

test('a backend that never answers is an error within its time', async () => {
  await using simulator = await SimulatorServer.start({})
  await using gateway = await faultyGateway(simulator)
  const session = await gateway.startSession()
  const cases = pairs.flatMap((pair) => [true, false].map((stream) => ({ ...pair, stream })))
  await Promise.all(
    cases.map(async ({ api, upstream, stream }) => {
      const talk = new Talk(gateway, session, voices[api], { model: `${upstream}-hang` })
      talk.user('Is anybody there?')
      const { statusCode, body } = await talk.send({ stream })
      checkError(api, statusCode, await body.text())
      expect(statusCode).toBe(504)
    }),
  )
  expect(await samplesOf(gateway, session.id)).toEqual([])
  await expect.poll(() => simulator.stats.inFlight).toBe(0)
})

test.each(pairs)('$api over $upstream: a client that goes away ends the reply at its source', async (pair) => {
  const before = activeResources()
  {
    await using simulator = await SimulatorServer.start({ recordEmitted: 100, reasoning: true, tokensPerSecond: 20 })
    await using gateway = await TestGateway.start({
      models: [{ name: 'sim', api: pair.upstream, backends: [{ url: simulator.url }] }],
    })
    const session = await gateway.startSession()
    const talk = new Talk(gateway, session, voices[pair.api])
    talk.user('Tell me everything.')
    // A stream, as soon as it has said something; and a whole reply while it is being made.
    const streamed = await talk.send({ stream: true })
    let text = ''
    for await (const piece of streamed.body.setEncoding('utf8') as AsyncIterable<string>) {
      text += piece
      if (text.includes('Let')) break
    }
    await expect.poll(() => simulator.stats.aborted).toBe(1)
    talk.user('All of it!')
    const whole = new AbortController()
    const unanswered = fetch(`${gateway.url}${talk.voice.path}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${session.key}`, 'content-type': 'application/json' },
      body: JSON.stringify(talk.body({ stream: false })),
      signal: whole.signal,
    })
    await expect.poll(() => simulator.stats.inFlight).toBe(1)
    whole.abort()
    await expect(unanswered).rejects.toThrow('abort')
    await expect.poll(() => simulator.stats.aborted).toBe(2)
    await expect.poll(() => gateway.server.gateway.status()).toMatchObject({ running: 0, interactions: { abandoned: 2 } })
    await gateway.ask(`/v1/sessions/${session.id}/end`, { method: 'POST' })
    const [row, ...more] = await samplesOf(gateway, session.id)
    expect(more).toEqual([])
    expect(row).toMatchObject({ discarded: 'client_gone', finishReason: null })
    expect(row && wordsOf(row)).toMatch(/^Let/)
  }
  expect(await leftSince(before)).toEqual([])
})
