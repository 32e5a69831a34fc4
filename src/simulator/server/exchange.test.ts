import { describe, expect, test } from 'vitest'
import { activeResources, leftSince } from '../../../test/support/kit/active-resources.ts'
import { apiPaths, body, eventsOf, post, saidIn, Stream } from '../../../test/support/simulator/ask.ts'
import { SimulatorServer } from './server.ts'

const question = 'What is 17 * 3? End with `Answer: <number>`.'
const complete = 'Answer: 51'

/** What only a stream that is complete has. */
const ends = { chat: /"finish_reason":"/, responses: /"response\.completed"/, messages: /"message_stop"/ }

/** How each API reports an error in the middle. */
const errors = {
  chat: { error: { type: 'server_error' } },
  responses: { type: 'error' },
  messages: { type: 'error', error: { type: 'api_error' } },
}

describe.each(['chat', 'responses', 'messages'] as const)('a streamed reply of %s', (api) => {
  const path = apiPaths[api]
  const ask = async (server: SimulatorServer, fault: string) => {
    const stream = await Stream.open(server, path, body(api, question, { model: `fault:${fault}` }))
    return stream.rest()
  }

  test.each([
    ['kill', 'broken'],
    ['quiet-end', 'end'],
    ['midstream-error', 'end'],
  ] as const)('%s: begins and sends content, but never completes', async (fault, how) => {
    await using server = await SimulatorServer.start()
    const { end, events, text } = await ask(server, fault)
    expect(end).toBe(how)
    expect(saidIn(events)).toBe(complete)
    expect(text).not.toMatch(ends[api])
    expect(text).not.toContain('[DONE]')
    if (fault === 'midstream-error') expect(events.at(-1)).toMatchObject(errors[api])
    else expect(events.at(-1)).not.toMatchObject(errors[api])
  })

  test('malformed: one event is not JSON, and the stream continues', async () => {
    await using server = await SimulatorServer.start()
    const { end, text } = await ask(server, 'malformed')
    const events = [...text.matchAll(/^data: (.*)$/gm)].filter(([, data]) => data !== '[DONE]')
    expect(end).toBe('end')
    expect(events.length - eventsOf(text).length).toBe(1)
    expect(text).toMatch(ends[api])
  })

  test('stall: sends content, then nothing until its client disconnects', async () => {
    await using server = await SimulatorServer.start()
    const before = activeResources()
    const stream = await Stream.open(server, path, body(api, question, { model: 'fault:stall' }))
    await stream.until((events) => saidIn(events) === complete)
    expect(server.stats).toMatchObject({ inFlight: 1, byStatus: { 200: 1 } })
    stream.abort()
    await expect.poll(() => server.stats).toMatchObject({ inFlight: 0, aborted: 1 })
    expect((await leftSince(before)).filter((kind) => kind.startsWith('Timeout'))).toEqual([])
  })

  test('trickle: sends one token at a time', async () => {
    await using server = await SimulatorServer.start()
    const stream = await Stream.open(server, path, body(api, question, { model: 'fault:trickle' }))
    const begun = await stream.until((events) => saidIn(events) !== '')
    // On a busy machine several events come at once.
    const first = begun.findIndex((_, index) => saidIn(begun.slice(0, index + 1)) !== '')
    expect(saidIn(begun.slice(0, first + 1))).toBe('Answer')
    expect(saidIn((await stream.rest()).events)).toBe(complete)
  })
})

describe('a whole reply', () => {
  const ask = (server: SimulatorServer, fault: string) =>
    post(server, apiPaths.chat, body('chat', question, { model: `fault:${fault}` }))

  test('with the fault kill loses its connection', async () => {
    await using server = await SimulatorServer.start()
    await expect(ask(server, 'kill')).rejects.toThrow(/terminated|closed|aborted/)
  })

  test('with the fault quiet-end is half a document', async () => {
    await using server = await SimulatorServer.start()
    const { status, text } = await ask(server, 'quiet-end')
    expect(status).toBe(200)
    expect(() => JSON.parse(text) as unknown).toThrow(SyntaxError)
    expect(text).toMatch(/^\{"id"/)
  })

  test('with the fault midstream-error is an error with status 200', async () => {
    await using server = await SimulatorServer.start()
    const { status, text } = await ask(server, 'midstream-error')
    expect([status, JSON.parse(text)]).toMatchObject([200, { error: { type: 'server_error' } }])
  })

  test('that stalled can be aborted', async () => {
    await using server = await SimulatorServer.start()
    const sent = ask(server, 'stall')
    sent.catch(() => {})
    await expect.poll(() => server.stats.byStatus).toEqual({ 200: 1 })
    expect(server.simulator.engine.abort()).toBe(1)
    await expect(sent).rejects.toThrow(/terminated|closed|aborted/)
  })
})

test('fault rates follow the options', async () => {
  await using server = await SimulatorServer.start({ faults: { midstreamError: 0.5, quietEnd: 0.5 } })
  const counts = { error: 0, quiet: 0 }
  for (let seed = 0; seed < 40; seed += 1) {
    const { text } = await post(server, apiPaths.chat, body('chat', question, { stream: true, seed }))
    counts[text.includes('"error"') ? 'error' : 'quiet'] += 1
  }
  expect(counts.error).toBeGreaterThan(8)
  expect(counts.quiet).toBeGreaterThan(8)
})
