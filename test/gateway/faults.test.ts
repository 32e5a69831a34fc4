import { expect, test } from 'vitest'
import { SimulatorServer } from '../../src/simulator/index.ts'
import type { ApiName } from '../../src/schema/index.ts'
import { activeResources, leftSince } from '../support/kit/active-resources.ts'
import { Chance } from '../support/gateway/fuzz/fuzz.ts'
import { validFeed } from '../support/gateway/fuzz/backend-replies.ts'
import { checkError, checkStream } from '../support/gateway/stream-events.ts'
import { Talk } from '../support/gateway/scripted-conversation.ts'
import { TestGateway } from '../support/gateway/test-gateway.ts'
import { emittedIn, samplesOf, type SampleRow } from '../support/gateway/emitted-tokens.ts'
import { apiClients, apiNames } from '../support/gateway/api-clients.ts'
import { ScriptedServer } from '../support/inference/scripted-server.ts'

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

/** A gateway with a model for each fault in each API. */
async function faultyGateway(simulator: SimulatorServer): Promise<TestGateway> {
  const models = apiNames.flatMap((api) =>
    [...Object.keys(faults), 'hang'].map((fault) => ({
      name: `${api}-${fault}`,
      upstreamName: `fault:${fault}`,
      api,
      backends: [{ url: simulator.url }],
      maxTries: 1,
      // Silence alone is ended by them, in a stream and before one.
      idleTimeoutMs: fault === 'stall' ? 500 : 60_000,
      requestTimeoutMs: fault === 'hang' || fault === 'stall' ? 2000 : 60_000,
    })),
  )
  return await TestGateway.start({ models })
}

test.each(pairs)('$api over $upstream: a broken reply is never taken as complete', async (pair) => {
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
  const talk = new Talk(gateway, session, apiClients[api], { model: `${upstream}-${fault}` })
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
    expect(modelText(row).length).toBeGreaterThan(0)
    if (upstream === 'chat') expect(emitted?.ids.slice(0, row.ids?.length)).toEqual(Array.from(row.ids ?? []))
  }
}

function modelText({ messages }: SampleRow): string {
  const last = messages.at(-1)
  return last?.role === 'assistant' ? `${last.reasoning_content ?? ''}${last.content ?? ''}` : ''
}

test.each(pairs)('$api over $upstream: a reply that breaks before the client got any part is retried', async (pair) => {
  const { api, upstream } = pair
  await using server = await ScriptedServer.start((response, { headers, body }) => {
    const stream = body.includes('"stream":true')
    const { headers: head, pieces } = validFeed(upstream, stream, new Chance(1))
    const bytes = Buffer.concat(pieces)
    response.writeHead(200, head)
    if (headers['x-stainless-retry-count'] !== undefined) response.end(bytes)
    else response.write(stream ? ': one moment\n\n' : bytes.subarray(0, -1), () => response.destroy())
  })
  await using gateway = await TestGateway.start({
    models: [{ name: 'sim', api: upstream, backends: [{ url: server.url }] }],
  })
  const session = await gateway.startSession()
  const talk = new Talk(gateway, session, apiClients[api])
  talk.user('Try again if you must.')
  const received = [await talk.ask({ stream: true }), await talk.ask({ stream: false })]
  expect(server.requests).toHaveLength(4)
  const rows = await samplesOf(gateway, session.id)
  expect(rows.map(({ interaction, discarded }) => ({ interaction, discarded }))).toEqual(
    received.map(({ id }) => ({ interaction: id, discarded: null })),
  )
})

test('a backend that never answers causes an error after the timeout', async () => {
  await using simulator = await SimulatorServer.start({})
  await using gateway = await faultyGateway(simulator)
  const session = await gateway.startSession()
  const cases = pairs.flatMap(({ api, upstream }) => [true, false].map((stream) => ({ api, upstream, stream })))
  await Promise.all(
    cases.map(async ({ api, upstream, stream }) => {
      const talk = new Talk(gateway, session, apiClients[api], { model: `${upstream}-hang` })
      talk.user('Is anybody there?')
      const { statusCode, body } = await talk.send({ stream })
      checkError(api, statusCode, await body.text())
      expect(statusCode).toBe(504)
    }),
  )
  expect(await samplesOf(gateway, session.id)).toEqual([])
  await expect.poll(() => simulator.stats.inFlight).toBe(0)
})

test.each(pairs)('$api over $upstream: a client that disconnects aborts the reply at the backend', async (pair) => {
  const before = activeResources()
  {
    await using simulator = await SimulatorServer.start({ recordEmitted: 100, reasoning: true, tokensPerSecond: 20 })
    await using gateway = await TestGateway.start({
      models: [{ name: 'sim', api: pair.upstream, backends: [{ url: simulator.url }] }],
    })
    const session = await gateway.startSession()
    const talk = new Talk(gateway, session, apiClients[pair.api])
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
    const unanswered = fetch(`${gateway.url}${talk.apiClient.path}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${session.key}`, 'content-type': 'application/json' },
      body: JSON.stringify(talk.body({ stream: false })),
      signal: whole.signal,
    })
    await expect.poll(() => simulator.stats.inFlight).toBe(1)
    whole.abort()
    await expect(unanswered).rejects.toThrow('abort')
    await expect.poll(() => simulator.stats.aborted).toBe(2)
    await expect
      .poll(() => gateway.server.gateway.status())
      .toMatchObject({ running: 0, interactions: { abandoned: 2 } })
    await gateway.ask(`/v1/sessions/${session.id}/end`, { method: 'POST' })
    const rows = await samplesOf(gateway, session.id)
    expect(rows.map(({ discarded, finishReason }) => ({ discarded, finishReason }))).toEqual([
      { discarded: 'client_gone', finishReason: null },
      { discarded: 'client_gone', finishReason: null },
    ])
    // Of the whole one it is only known that there was something.
    expect(rows.map(modelText)).toEqual([expect.stringMatching(/^Let/), ''])
  }
  expect(await leftSince(before)).toEqual([])
})

test('an export contains all replies that ended before it, broken ones included', async () => {
  await using server = await ScriptedServer.start((response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    response.write('data: {"id":"chatcmpl-1","choices":[{"index":0,"delta":{"content":"He"}}]}\n\n', () => {
      response.destroy()
    })
  })
  await using gateway = await TestGateway.start({
    models: [{ name: 'm', maxTries: 1, backends: [{ url: server.url }] }],
  })
  const session = await gateway.startSession()
  // Each is written a moment later: that none is missed is no luck.
  for (let asked = 1; asked <= 20; asked += 1) {
    const body = { model: 'm', stream: true, messages: [{ role: 'user', content: `hello ${asked}` }] }
    await gateway.ask('/v1/chat/completions', { body, key: session.key })
    const { text } = await gateway.ask(`/v1/export?session=${session.id}&rows=interactions&include=discarded`)
    expect(text.match(/"discarded":"truncated"/g)).toHaveLength(asked)
  }
})
