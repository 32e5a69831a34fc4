import { describe, expect, test } from 'vitest'
import { MillraceError } from '../../errors/index.ts'
import { CollectingSink } from '../../../test/support/inference/collecting-sink.ts'
import { FakeClock } from '../../../test/support/inference/fake-clock.ts'
import { ask, openBackend } from '../../../test/support/inference/open-backend.ts'
import type { BackendReply, BackendRequest, ReplyEvent } from '../../apis/backend.ts'
import type { ToolDefinition } from '../../schema/index.ts'
import { SimulatorServer } from '../server/server.ts'
import { Simulator } from './simulator.ts'

const calculator: ToolDefinition = {
  type: 'function',
  function: {
    name: 'calculator',
    parameters: { type: 'object', properties: { expression: { type: 'string' } }, required: ['expression'] },
  },
}

function asking(sink: CollectingSink, rest: Partial<BackendRequest> = {}): BackendRequest {
  const messages = [{ role: 'user', content: 'What is 17 * 3? End with `Answer: <number>`.' }] as const
  return ask({ messages, captureTokens: true, sink, ...rest })
}

/** What a sink saw, apart from the time and the names of things. */
function seen({ events }: CollectingSink): unknown[] {
  return events.map(({ data, document, deltas, isEnd }: ReplyEvent) => {
    expect(data).toBe(document ? JSON.stringify(document) : '[DONE]')
    const { created: _at, model: _name, ...rest } = (document ?? {}) as Record<string, unknown>
    return { rest, deltas, isEnd }
  })
}

const codeOf = (sent: Promise<BackendReply>) =>
  sent.then(
    () => 'complete',
    (error: unknown) => (error as MillraceError).code,
  )

describe('a sink in process', () => {
  test.each([
    ['text', {}, {}],
    ['a tool call', {}, { tools: [calculator] }],
    ['reasoning and a tool call', { reasoning: true }, { tools: [calculator] }],
    ['a reply cut in a name', { reasoning: true }, { tools: [calculator], sampling: { maxTokens: 16 } }],
    ['a mixture of experts', { routedExperts: '2x2' }, {}],
    ['one token at a time', { tokensPerSecond: 2000, spread: 0 }, {}],
  ])('gets the same events as a stream over HTTP: %s', async (_, options, fields) => {
    const setting = { ...options, weightVersion: '4' }
    await using simulator = new Simulator(setting)
    await using server = await SimulatorServer.start(setting)
    await using client = openBackend(server.url, { stream: true })
    const [inProcess, overHttp] = [new CollectingSink(), new CollectingSink()]
    const reply = await simulator.send(asking(inProcess, fields))
    const { firstTokenMs: _time, ...same } = await client.send(asking(overHttp, fields))
    expect(reply).toMatchObject(same)
    expect(inProcess.deltas).toEqual(overHttp.deltas)
    expect(seen(inProcess)).toHaveLength(overHttp.events.length)
    expect(inProcess.events.map(({ isEnd }) => isEnd)).toEqual(overHttp.events.map(({ isEnd }) => isEnd))
    if (!('sampling' in fields)) expect(inProcess.message).toEqual(reply.message)
  })

  test('is optional: a request without a stream gets a whole reply', async () => {
    await using simulator = new Simulator()
    const sink = new CollectingSink()
    expect((await simulator.send(asking(sink, { stream: false }))).finishReason).toBe('stop')
    expect(sink.events).toHaveLength(0)
  })

  test('gets events at the configured pace, and none while it is full', async () => {
    using clock = new FakeClock()
    await using simulator = new Simulator({ ttftMs: 100, tokensPerSecond: 10, spread: 0 })
    let resume = (): void => {}
    const sink = new CollectingSink((_event, more) => {
      resume = more
      return sink.events.length !== 3
    })
    const sent = simulator.send(asking(sink))
    expect(sink.events).toHaveLength(0)
    await clock.pass(99)
    expect(sink.events.length).toBeLessThan(3)
    await clock.pass(60_000)
    expect(sink.events).toHaveLength(3)
    expect(clock.timers).toBe(0)
    resume()
    const reply = await sent
    expect(sink.message).toEqual(reply.message)
    expect(sink.events.at(-1)).toMatchObject({ data: '[DONE]', isEnd: true })
  })

  test('may be full and resume at once', async () => {
    await using simulator = new Simulator()
    const sink = new CollectingSink((_event, resume) => {
      resume()
      return false
    })
    expect((await simulator.send(asking(sink))).message).toEqual(sink.message)
  })

  test('gets the partial reply when its caller aborts', async () => {
    using clock = new FakeClock()
    await using simulator = new Simulator({ tokensPerSecond: 10, spread: 0, weightVersion: '1' })
    const controller = new AbortController()
    const sink = new CollectingSink()
    const sent = simulator.send(asking(sink, { signal: controller.signal }))
    await clock.pass(150)
    const gone = new MillraceError('cancelled', 'gone')
    controller.abort(gone)
    await expect(sent).rejects.toBe(gone)
    expect(clock.timers).toBe(0)
    expect(sink.partials).toHaveLength(1)
    const { message, tokens } = sink.partials[0] ?? {}
    expect(message).toEqual(sink.message)
    expect(tokens?.ids).toHaveLength(2)
    expect(tokens?.logprobs).toHaveLength(2)
    expect(tokens?.version).toBe('1')
  })

  test.each([
    ['kill', 'model_truncated'],
    ['quietEnd', 'model_truncated'],
    ['cut', 'model_truncated'],
    ['malformed', 'model_malformed'],
    ['midstreamError', 'model_server_error'],
  ])('gets the partial reply before the fault %s', async (fault, code) => {
    await using simulator = new Simulator({ faults: { [fault]: 1 }, tokensPerSecond: 2000, spread: 0 })
    await using server = await SimulatorServer.start(simulator.settings)
    await using client = openBackend(server.url, { stream: true })
    const [inProcess, overHttp] = [new CollectingSink(), new CollectingSink()]
    expect(await codeOf(simulator.send(asking(inProcess)))).toBe(code)
    expect(await codeOf(client.send(asking(overHttp)))).toBe(code)
    expect(inProcess.partials).toEqual(overHttp.partials)
    expect(inProcess.deltas).toEqual(overHttp.deltas)
    expect(inProcess.events.some(({ isEnd }) => isEnd)).toBe(false)
  })

  test('with a stalled stream ends when the caller aborts', async () => {
    await using simulator = new Simulator({ faults: { stall: 1 } })
    const controller = new AbortController()
    const sink = new CollectingSink()
    const sent = simulator.send(asking(sink, { signal: controller.signal }))
    expect(sink.events.length).toBeGreaterThan(1)
    controller.abort(new MillraceError('cancelled', 'enough'))
    expect(await codeOf(sent)).toBe('cancelled')
    expect(sink.partials).toHaveLength(1)
  })

  test('gets nothing of a refused request', async () => {
    await using simulator = new Simulator({ faults: { serverError: 1 } })
    const sink = new CollectingSink()
    expect(await codeOf(simulator.send(asking(sink)))).toBe('model_server_error')
    expect(sink).toMatchObject({ events: [], partials: [] })
  })
})

describe('new weights during a stream', () => {
  test('set the version of the later tokens', async () => {
    using clock = new FakeClock()
    await using simulator = new Simulator({ tokensPerSecond: 10, spread: 0, weightVersion: '7' })
    const sink = new CollectingSink()
    const sent = simulator.send(asking(sink))
    await clock.pass(150)
    const before = sink.events.length
    simulator.change({ weightVersion: '8' })
    await clock.pass(60_000)
    const { tokens } = await sent
    expect(tokens).toMatchObject({
      version: '7',
      versionSpans: [
        { from: 0, version: '7' },
        { from: 2, version: '8' },
      ],
    })
    const versions = sink.events.flatMap(({ document }) => {
      const { metadata } = (document ?? {}) as { metadata?: { weight_version: string } }
      return metadata ? [metadata.weight_version] : []
    })
    expect(versions.slice(0, before)).toEqual(versions.slice(0, before).map(() => '7'))
    expect(versions.slice(before)).toEqual(versions.slice(before).map(() => '8'))
  })
})

describe('a client body', () => {
  const own = { model: 'theirs', messages: [{ role: 'user', content: 'What is 1 + 2?' }], logprobs: true }

  test('is answered with the same document as over HTTP', async () => {
    await using simulator = new Simulator()
    const messages = [{ role: 'user', content: 'What is 1 + 2?' }] as const
    const reply = await simulator.send(ask({ messages, body: Buffer.from(JSON.stringify(own)), captureTokens: true }))
    const { text, document } = reply.raw ?? { text: '', document: {} }
    expect(JSON.parse(text)).toEqual(document)
    expect(document).toMatchObject({
      object: 'chat.completion',
      model: 'theirs',
      choices: [{ message: { content: 'The answer is 3.' }, logprobs: { content: expect.any(Array) } }],
    })
    expect(document).not.toHaveProperty('prompt_token_ids')
    expect(reply.tokens?.ids.length).toBe(reply.usage.output)
  })
})
