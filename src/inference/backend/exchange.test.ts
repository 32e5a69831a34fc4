import { once } from 'node:events'
import type { ServerResponse } from 'node:http'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { describe, expect, test } from 'vitest'
import { activeResources, leftSince } from '../../../test/support/kit/active-resources.ts'
import { seededRandom } from '../../kit/index.ts'
import { codeOf, failureOf } from '../../../test/support/inference/code-of.ts'
import { CollectingSink } from '../../../test/support/inference/collecting-sink.ts'
import { FakeClock } from '../../../test/support/inference/fake-clock.ts'
import { ask, openBackend, type Setting } from '../../../test/support/inference/open-backend.ts'
import {
  chatChunk,
  chatReply,
  ScriptedServer,
  sendJson,
  type Handler,
} from '../../../test/support/inference/scripted-server.ts'
import {
  chatEvents,
  eventStream,
  randomMessage,
  responsesEvents,
} from '../../../test/support/inference/streamed-message.ts'
import type { BackendReply, BackendRequest, ReplyEvent } from '../../apis/backend.ts'

/** One exchange with a server that answers so. */
async function exchange(
  handler: Handler,
  request: Partial<BackendRequest>,
  setting: Setting = {},
): Promise<BackendReply> {
  await using server = await ScriptedServer.start(handler)
  await using backend = openBackend(server.url, setting)
  return await backend.send(ask({ stream: true, ...request }))
}

function beginStream(response: ServerResponse): ServerResponse {
  response.socket?.setNoDelay(true)
  return response.writeHead(200, { 'content-type': 'text/event-stream' })
}

/** In so many writes, each of which goes out by itself. */
async function sendCut(response: ServerResponse, bytes: Buffer, cuts: readonly number[]): Promise<void> {
  beginStream(response)
  let start = 0
  for (const end of [...cuts, bytes.length]) {
    response.write(bytes.subarray(start, end))
    start = end
    await nextTurn()
  }
  response.end()
}

describe('the events of a stream', () => {
  test.each([
    { api: 'chat', eventsOf: chatEvents },
    { api: 'responses', eventsOf: responsesEvents },
  ] as const)('hold deltas that add up to the message wherever bytes are cut: $api', async ({ api, eventsOf }) => {
    const messages = Array.from({ length: 40 }, (_, seed) => randomMessage(seededRandom(seed)))
    let turn = 0
    await using server = await ScriptedServer.start((response) => {
      const random = seededRandom(1000 + turn)
      const bytes = eventStream(eventsOf(messages[turn] ?? messages[0]!))
      turn += 1
      const cuts = Array.from({ length: 8 }, () => Math.floor(random() * bytes.length)).sort(
        (one, other) => one - other,
      )
      return sendCut(response, bytes, cuts)
    })
    await using backend = openBackend(server.url, { api })
    for (const [seed, message] of messages.entries()) {
      // Every third event it wants no more, for a turn.
      const sink = new CollectingSink((_event, resume) => {
        const isFull = sink.events.length % 3 === 0
        if (isFull) setImmediate(resume)
        return !isFull
      })
      const reply = await backend.send(ask({ stream: true, sink }))
      expect(reply.message, `reply ${seed}`).toEqual(message)
      expect(sink.message, `deltas ${seed}`).toEqual(message)
      expect(sink.events.map(({ data }) => data)).toEqual(eventsOf(message))
      expect(sink.partials).toEqual([])
    }
  })

  test('hold their deltas, and tell when the reply can no longer be lost', async () => {
    const sink = new CollectingSink()
    await exchange(
      (response) =>
        beginStream(response).end(
          `${chatChunk({ content: 'a', reasoning_content: 'r' })}${chatChunk({}, 'stop')}data: [DONE]\n\n`,
        ),
      { sink },
    )
    expect(sink.events.map(({ deltas, isEnd }) => ({ deltas, isEnd }))).toEqual([
      {
        deltas: [
          { kind: 'reasoning', text: 'r' },
          { kind: 'content', text: 'a' },
        ],
        isEnd: false,
      },
      { deltas: [], isEnd: true },
      { deltas: [], isEnd: true },
    ])
    const [first, , done] = sink.events
    expect(first?.document).toEqual(JSON.parse(first?.data ?? ''))
    expect(done).toMatchObject({ data: '[DONE]', document: undefined })
  })

  test('arrive one by one, not at the end', async () => {
    const { promise: taken, resolve } = Promise.withResolvers<void>()
    const sink = new CollectingSink(() => {
      resolve()
      return true
    })
    const reply = await exchange(
      async (response) => {
        beginStream(response).write(chatChunk({ content: 'a' }))
        // The rest is not written before the first was taken.
        await taken
        response.end(chatChunk({ content: 'b' }, 'stop'))
      },
      { sink },
    )
    expect(reply.message.content).toBe('ab')
  })

  test('of one read arrive together, also those before a broken event', async () => {
    const sink = new CollectingSink()
    const events = chatChunk({ content: 'a' }) + chatChunk({ content: 'b' }) + chatChunk({ content: 'c' })
    const code = await codeOf(() =>
      exchange((response) => void beginStream(response).end(`${events}data: {"broken\n\n`), { sink }),
    )
    expect(code).toBe('model_malformed')
    expect(sink.reads).toEqual([3])
    expect(sink.partials).toMatchObject([{ message: { content: 'abc' } }])
  })

  test('may be as long as a whole reply, as in the last event of Responses', async () => {
    const content = 'x'.repeat(9 * 1024 * 1024)
    const item = { id: 'msg', type: 'message', content: [{ type: 'output_text', text: content }] }
    const events = [
      { type: 'response.output_item.added', output_index: 0, item: { ...item, content: [] } },
      { type: 'response.output_text.delta', output_index: 0, content_index: 0, delta: content },
      { type: 'response.output_item.done', output_index: 0, item },
      { type: 'response.completed', response: { status: 'completed', output: [item] } },
    ]
    const stream = eventStream(events.map((event) => JSON.stringify(event)))
    const sink = new CollectingSink()
    const reply = await exchange((response) => beginStream(response).end(stream), { sink }, { api: 'responses' })
    expect(reply.message.content).toBe(content)
    expect(sink.events).toHaveLength(events.length)
  })

  test('are not sent if the server answers with a whole reply', async () => {
    const sink = new CollectingSink()
    const reply = await exchange((response) => sendJson(response, chatReply('plain')), { sink })
    expect(reply.message.content).toBe('plain')
    expect(sink.events).toEqual([])
  })

  test('come without the long token lists, which are read separately', async () => {
    const promptIds = Array.from({ length: 3000 }, (_, index) => index)
    const first = { prompt_token_ids: promptIds, choices: [{ index: 0, delta: { content: 'a' }, token_ids: [7] }] }
    const sink = new CollectingSink()
    const reply = await exchange(
      (response) => beginStream(response).end(`data: ${JSON.stringify(first)}\n\n${chatChunk({}, 'stop')}`),
      { sink, captureTokens: true },
    )
    expect(reply.tokens).toMatchObject({ promptIds: Int32Array.from(promptIds), ids: Int32Array.of(7) })
    expect(sink.events[0]?.data.length).toBeLessThan(200)
    expect(sink.events[0]?.document).toEqual({ choices: [{ index: 0, delta: { content: 'a' } }] })
    expect(sink.message.content).toBe('a')
  })
})

/** Takes no more after so many events, until somebody calls the `resume` that it hands out then. */
class SlowSink extends CollectingSink {
  resume: (() => void) | undefined

  constructor(count = 1) {
    super((_event, resume) => {
      if (this.resume || this.events.length < count) return true
      this.resume = resume
      return false
    })
  }

  async full(): Promise<() => void> {
    await expect.poll(() => this.resume).toBeDefined()
    return () => this.resume?.()
  }
}

describe('a sink that accepts no more events', () => {
  test('pauses the server, keeps at most one read, and resumes at the same place', async () => {
    const event = chatChunk({ content: 'x'.repeat(64 * 1024) })
    const total = 512
    let written = 0
    await using server = await ScriptedServer.start(async (response) => {
      beginStream(response)
      for (; written < total; written += 1) if (!response.write(event)) await once(response, 'drain')
      response.end(chatChunk({}, 'stop'))
    })
    await using backend = openBackend(server.url)
    const sink = new SlowSink()
    const pending = backend.send(ask({ stream: true, sink }))
    let before = -1
    let unchanged = 0
    await expect
      .poll(() => {
        unchanged = written === before && sink.resume ? unchanged + 1 : 0
        before = written
        return unchanged
      })
      .toBeGreaterThan(5)
    expect(written).toBeLessThan(total / 2)
    expect(sink.events).toHaveLength(1)
    sink.resume?.()
    const reply = await pending
    expect(reply.message.content).toHaveLength(total * 64 * 1024)
    expect(sink.events).toHaveLength(total + 1)
  })

  test('does not use up the timeouts of the server', async () => {
    using time = new FakeClock('timeouts')
    const sink = new SlowSink(2)
    await using server = await ScriptedServer.start(async (response) => {
      beginStream(response).write(chatChunk({ content: 'a' }))
      await expect.poll(() => sink.events.length).toBe(1)
      response.write(chatChunk({ content: 'b' }))
      await sink.full()
      response.end(chatChunk({ content: 'c' }, 'stop'))
    })
    await using backend = openBackend(server.url, { idleTimeoutMs: 1000 })
    const pending = backend.send(ask({ stream: true, sink }))
    const resume = await sink.full()
    await time.pass(5000)
    resume()
    expect((await pending).message.content).toBe('abc')
  })

  test('and never resumes fails its call as cancelled, not as a fault of the server', async () => {
    const sink = new CollectingSink(() => false)
    await using server = await ScriptedServer.start((response) => {
      beginStream(response).write(chatChunk({ content: 'a' }))
    })
    await using backend = openBackend(server.url, { requestTimeoutMs: 60 })
    expect(await codeOf(() => backend.send(ask({ stream: true, sink })))).toBe('cancelled')
    await server.requests[0]?.closed
    expect(sink.partials).toEqual([{ message: { role: 'assistant', content: 'a' } }])
  })

  test('can be aborted; a late resume has no effect, and no resource is left', async () => {
    const before = activeResources()
    {
      await using server = await ScriptedServer.start((response) => {
        beginStream(response).write(chatChunk({ content: 'a' }))
      })
      await using backend = openBackend(server.url)
      const controller = new AbortController()
      const sink = new SlowSink()
      const failed = failureOf(() => backend.send(ask({ stream: true, sink, signal: controller.signal })))
      const resume = await sink.full()
      controller.abort(new Error('enough'))
      expect(String(await failed)).toContain('enough')
      await server.requests[0]?.closed
      resume()
      expect(sink.partials).toEqual([{ message: { role: 'assistant', content: 'a' } }])
    }
    expect(await leftSince(before)).toEqual([])
  })

  test('gets a connection reset at once, and a closed connection when it resumes', async () => {
    let response: ServerResponse | undefined
    await using server = await ScriptedServer.start((opened) => {
      response = opened
      beginStream(opened).write(chatChunk({ content: 'a' }))
    })
    await using backend = openBackend(server.url)
    const begin = async () => {
      const sink = new SlowSink()
      const code = codeOf(() => backend.send(ask({ stream: true, sink })))
      return { sink, code, resume: await sink.full() }
    }
    const reset = await begin()
    response?.socket?.resetAndDestroy()
    expect(await reset.code).toBe('model_truncated')
    const closed = await begin()
    response?.destroy()
    closed.resume()
    expect(await closed.code).toBe('model_truncated')
    const partials = [...reset.sink.partials, ...closed.sink.partials]
    expect(partials.map(({ message }) => message.content)).toEqual(['a', 'a'])
  })

  test('may resume before it returns', async () => {
    const sink = new CollectingSink((_event, resume) => {
      resume()
      return false
    })
    const reply = await exchange(
      async (response) => {
        beginStream(response).write(chatChunk({ content: 'a' }))
        await expect.poll(() => sink.events.length).toBe(1)
        response.end(chatChunk({ content: 'b' }, 'stop'))
      },
      { sink },
    )
    expect(reply.message.content).toBe('ab')
  })

  test('may be resumed during the events of another call', async () => {
    const held = new SlowSink()
    await using server = await ScriptedServer.start(async (response) => {
      beginStream(response).write(chatChunk({ content: 'a' }))
      await held.full()
      response.end(chatChunk({ content: 'b' }, 'stop'))
    })
    await using backend = openBackend(server.url)
    const pending = backend.send(ask({ stream: true, sink: held }))
    const resume = await held.full()
    const other = new CollectingSink(() => {
      resume()
      return true
    })
    expect((await backend.send(ask({ stream: true, sink: other }))).message.content).toBe('ab')
    expect((await pending).message.content).toBe('ab')
  })
})

describe('a reply that breaks off', () => {
  const call = { index: 0, id: 'c', function: { name: 'add', arguments: '{"a"' } }
  const nameless = { index: 1, id: 'd' }
  const half = chatChunk({ content: 'half', tool_calls: [call, nameless] })
  const partial = {
    message: {
      role: 'assistant',
      content: 'half',
      tool_calls: [{ id: 'c', type: 'function', function: { name: 'add', arguments: '{"a"' } }],
    },
  }

  test.each<[string, (response: ServerResponse) => unknown, string]>([
    ['a clean end', (response) => response.end(half), 'model_truncated'],
    ['[DONE] and no reason', (response) => response.end(`${half}data: [DONE]\n\n`), 'model_truncated'],
    ['a lost connection', (response) => response.write(half, () => response.destroy()), 'model_truncated'],
    ['a broken event', (response) => response.write(`${half}data: {"cho\n\n`), 'model_malformed'],
    [
      'an error in the stream',
      (response) => response.write(`${half}data: {"error":{"message":"no","type":"overloaded_error"}}\n\n`),
      'model_overloaded',
    ],
    ['silence', (response) => response.write(half), 'model_timeout'],
  ])('by %s gives its partial message', async (_name, end, code) => {
    const sink = new CollectingSink()
    const send = (): Promise<unknown> =>
      exchange((response) => end(beginStream(response)), { sink }, { idleTimeoutMs: 100 })
    expect(await codeOf(send)).toBe(code)
    expect(sink.partials).toEqual([partial])
  })

  test('by an abort closes the connection at once', async () => {
    await using server = await ScriptedServer.start((response) => void beginStream(response).write(half))
    await using backend = openBackend(server.url)
    const controller = new AbortController()
    const sink = new CollectingSink()
    const failed = failureOf(() => backend.send(ask({ stream: true, sink, signal: controller.signal })))
    await expect.poll(() => sink.events.length).toBe(1)
    controller.abort(new Error('enough'))
    // What had come is known when the call ends.
    expect(sink.partials).toEqual([partial])
    expect(String(await failed)).toContain('enough')
    await server.requests[0]?.closed
  })

  test('by an abort during an event gets no further events and leaves no resource', async () => {
    const before = activeResources()
    {
      const { promise: taken, resolve } = Promise.withResolvers<void>()
      await using server = await ScriptedServer.start(async (response) => {
        beginStream(response).write(half)
        await taken
        response.write(chatChunk({ content: ' more' }) + chatChunk({}, 'stop'))
      })
      await using backend = openBackend(server.url)
      const controller = new AbortController()
      const sink = new CollectingSink(() => {
        controller.abort(new Error('enough'))
        resolve()
        return true
      })
      const failed = failureOf(() => backend.send(ask({ stream: true, sink, signal: controller.signal })))
      expect(String(await failed)).toContain('enough')
      await server.requests[0]?.closed
      expect(sink.events).toHaveLength(1)
      expect(sink.partials).toEqual([partial])
    }
    expect(await leftSince(before)).toEqual([])
  })

  test('has the tokens received before the first event with invalid ones', async () => {
    const chunk = (more: object): string =>
      `data: ${JSON.stringify({ choices: [{ index: 0, delta: { content: 'a' }, ...more }] })}\n\n`
    const whole = chunk({ token_ids: [1, 2], logprobs: { content: [{ logprob: -1 }, { logprob: -2 }] } })
    const lame = chunk({ token_ids: [3, 4], logprobs: { content: [{ logprob: -1 }] } })
    const sink = new CollectingSink()
    const broken = (text: string): Promise<string> =>
      codeOf(() => exchange((response) => beginStream(response).end(text), { sink, captureTokens: true }))
    await broken(whole)
    await broken(whole + lame)
    const tokens = { ids: Int32Array.of(1, 2), logprobs: Float32Array.of(-1, -2) }
    expect(sink.partials).toEqual([
      { message: { role: 'assistant', content: 'a' }, tokens },
      { message: { role: 'assistant', content: 'aa' }, tokens },
    ])
  })

  test('of Responses has a message joined from its deltas', async () => {
    const message = randomMessage(seededRandom(7))
    const events = responsesEvents(message).slice(0, -1)
    const sink = new CollectingSink()
    const code = await codeOf(() =>
      exchange((response) => beginStream(response).end(eventStream(events)), { sink }, { api: 'responses' }),
    )
    expect(code).toBe('model_truncated')
    expect(sink.partials).toEqual([{ message }])
  })

  test('before its first event is not reported to the sink', async () => {
    const sink = new CollectingSink()
    const endings: Handler[] = [
      (response) => beginStream(response).end(),
      (response) => beginStream(response).end('data: {"error":{"message":"no"}}\n\n'),
      (response) => sendJson(response, { error: { message: 'no' } }, 500),
    ]
    for (const ending of endings) await failureOf(() => exchange(ending, { sink }))
    expect(sink).toMatchObject({ events: [], partials: [] })
  })

  test('because its sink throws fails with the error of the sink', async () => {
    const sink = new CollectingSink(() => {
      throw new Error('no room')
    })
    const send = (): Promise<unknown> => exchange((response) => beginStream(response).write(half), { sink })
    expect(String(await failureOf(send))).toContain('no room')
    expect(sink.partials).toHaveLength(1)
  })
})

describe('a client body', () => {
  const body = Buffer.from('{"model":"m",  "messages":[], "made_up":1}')

  test('is sent unchanged, and the reply is returned as it was written', async () => {
    const text = JSON.stringify(chatReply('hé'), null, 1)
    await using server = await ScriptedServer.start((response) =>
      response.writeHead(200, { 'content-type': 'application/json' }).end(text),
    )
    await using backend = openBackend(server.url)
    const reply = await backend.send(ask({ body }))
    expect(server.requests[0]?.body).toBe(body.toString())
    expect(reply.raw).toEqual({ text, document: JSON.parse(text) })
    expect(reply.message.content).toBe('hé')
    expect(await backend.send(ask())).not.toHaveProperty('raw')
  })

  test('gets a raw reply without long token lists, read on the loop or on a thread', async () => {
    for (const count of [3_000, 12_000]) {
      const ids = Array.from({ length: count }, (_, index) => index)
      const reply = await exchange((response) => sendJson(response, chatReply('a', { prompt_token_ids: ids })), {
        body,
        captureTokens: true,
      })
      expect(reply.raw?.document).toEqual(chatReply('a'))
      expect(reply.raw?.text.length).toBeLessThan(500)
    }
  })

  test('gets events instead of a raw reply in a stream', async () => {
    const events: ReplyEvent[] = []
    const sink = new CollectingSink((event) => events.push(event) > 0)
    const reply = await exchange((response) => beginStream(response).end(chatChunk({ content: 'a' }, 'stop')), {
      body,
      sink,
    })
    expect(reply).not.toHaveProperty('raw')
    expect(events).toHaveLength(1)
  })
})
