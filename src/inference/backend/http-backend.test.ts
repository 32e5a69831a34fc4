import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { getEventListeners } from 'node:events'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { gzipSync } from 'node:zlib'
import { describe, expect, test } from 'vitest'
import { activeResources, leftSince } from '../../../test/support/kit/active-resources.ts'
import { codeOf, failureOf } from '../../../test/support/inference/code-of.ts'
import { CollectingSink } from '../../../test/support/inference/collecting-sink.ts'
import { FakeClock } from '../../../test/support/inference/fake-clock.ts'
import { ask, openBackend, type Setting } from '../../../test/support/inference/open-backend.ts'
import {
  ScriptedServer,
  chatChunk,
  chatReply,
  sendJson,
  type Handler,
} from '../../../test/support/inference/scripted-server.ts'
import type { HttpBackend } from './http-backend.ts'

/** One exchange with a server that answers so. */
async function exchange(handler: Handler, setting: Setting = {}): ReturnType<HttpBackend['send']> {
  await using server = await ScriptedServer.start(handler)
  await using backend = openBackend(server.url, setting)
  return await backend.send(ask())
}

const beginStream: Handler = (response) => {
  response.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8' })
  response.write(chatChunk({ role: 'assistant', content: '' }))
}

describe('a request', () => {
  test('carries the key, the session, the configured headers and the retry count', async () => {
    await using server = await ScriptedServer.start((response) => sendJson(response, chatReply('hello')))
    await using backend = openBackend(server.url, { env: { OPENAI_API_KEY: 'secret' }, headers: { 'x-team': 'blue' } })
    expect(backend.name).toBe(new URL(server.url).host)
    const reply = await backend.send(ask())
    expect(reply).toEqual({
      message: { role: 'assistant', content: 'hello' },
      finishReason: 'stop',
      usage: { calls: 1, input: 7, cachedInput: 0, output: 3, reasoning: 0 },
    })
    await backend.send(ask({ retry: 2 }))
    const [first, second] = server.requests
    expect(first).toMatchObject({ method: 'POST', path: '/v1/chat/completions' })
    expect(first?.headers).toMatchObject({
      authorization: 'Bearer secret',
      'x-session-id': 'r-1',
      'x-smg-routing-key': 'r-1',
      'x-team': 'blue',
      'content-type': 'application/json',
    })
    expect(first?.headers).not.toHaveProperty('x-stainless-retry-count')
    expect(second?.headers).toMatchObject({ 'x-stainless-retry-count': '2' })
    expect(JSON.parse(first?.body ?? '')).toEqual({ model: 'm', messages: [{ role: 'user', content: 'hi' }] })
  })

  test('replaces its own headers with the configured ones', async () => {
    await using server = await ScriptedServer.start((response) => sendJson(response, chatReply('hello')))
    const headers = { 'User-Agent': 'mine', Accept: 'a/b', 'X-Session-Id': 'fixed', Authorization: 'Basic x' }
    await using backend = openBackend(server.url, { headers })
    await backend.send(ask())
    await backend.ask('/v1/models', new AbortController().signal)
    for (const { headers: sent } of server.requests) {
      expect(sent).toMatchObject({
        'user-agent': 'mine',
        accept: 'a/b',
        'x-session-id': 'fixed',
        authorization: 'Basic x',
      })
    }
    expect(server.requests).toHaveLength(2)
  })

  test('without a key sends EMPTY, keeps the query of the url and reuses connections', async () => {
    await using server = await ScriptedServer.start((response) => sendJson(response, chatReply('x')))
    await using backend = openBackend(`${server.origin}/deployments/a/?api-version=1`)
    for (let index = 0; index < 10; index += 1) await backend.send(ask())
    expect(server.requests[0]).toMatchObject({ path: '/deployments/a/chat/completions?api-version=1' })
    expect(server.requests[0]?.headers).toMatchObject({ authorization: 'Bearer EMPTY' })
    // A connection is free one turn of the loop after its reply, so a second one may have been opened.
    expect(await server.openConnections()).toBeLessThanOrEqual(2)
  })

  test('uses the Responses API if configured', async () => {
    await using server = await ScriptedServer.start((response) => {
      sendJson(response, {
        status: 'completed',
        output: [{ type: 'message', content: [{ type: 'output_text', text: 'hey' }] }],
      })
    })
    await using backend = openBackend(server.url, { api: 'responses' })
    expect((await backend.send(ask())).message.content).toBe('hey')
    expect(server.requests[0]?.path).toBe('/v1/responses')
  })

  test('never opens more connections than configured', async () => {
    await using server = await ScriptedServer.start((response) => sendJson(response, chatReply('x')))
    await using backend = openBackend(server.url, { options: { connections: 3 } })
    await Promise.all(Array.from({ length: 40 }, () => backend.send(ask())))
    expect(server.requests).toHaveLength(40)
    expect(await server.openConnections()).toBe(3)
  })
})

describe('a stream', () => {
  test('is assembled, and the time of its first token is measured', async () => {
    const reply = await exchange(
      (response, request) => {
        void beginStream(response, request)
        response.write(chatChunk({ content: 'hé' }))
        response.write(chatChunk({ content: 'llo' }, 'stop'))
        response.end(`data: {"choices":[],"usage":{"prompt_tokens":2,"completion_tokens":1}}\n\ndata: [DONE]\n\n`)
      },
      { stream: true },
    )
    expect(reply).toMatchObject({ message: { content: 'héllo' }, finishReason: 'stop', usage: { input: 2, output: 1 } })
    expect(reply.firstTokenMs).toBeGreaterThan(0)
  })

  test.each([
    ['no type', {}, ''],
    ['that of plain text', { 'content-type': 'text/plain' }, ': hello\n\n'],
    ['capitals', { 'content-type': 'Text/Event-Stream' }, 'event: message\n'],
  ])('with this content type is still read as a stream: %s', async (_name, headers, opening) => {
    const sink = new CollectingSink()
    await using server = await ScriptedServer.start((response) => {
      response.writeHead(200, headers)
      response.write(opening + chatChunk({ content: 'hel' }))
      response.end(chatChunk({ content: 'lo' }, 'stop'))
    })
    await using backend = openBackend(server.url, { stream: true })
    expect((await backend.send(ask({ sink }))).message.content).toBe('hello')
    expect(sink.message.content).toBe('hello')
  })

  test('that a server answers with plain JSON is read as a whole reply', async () => {
    const reply = await exchange((response) => sendJson(response, chatReply('plain')), { stream: true })
    expect(reply.message.content).toBe('plain')
  })

  test('that ends without a finish reason is truncated', async () => {
    const endings: Record<string, Handler> = {
      'clean end': (response) => response.end(chatChunk({ content: 'half' })),
      '[DONE] without a finish reason': (response) => response.end(`${chatChunk({ content: 'half' })}data: [DONE]\n\n`),
      'connection lost': (response) => {
        response.write(chatChunk({ content: 'half' }), () => response.destroy())
      },
      'in the middle of an event': (response) => response.end('data: {"choices":[{"delta":{"con'),
    }
    for (const [name, end] of Object.entries(endings)) {
      const code = await codeOf(() =>
        exchange(
          (response, request) => {
            void beginStream(response, request)
            return end(response, request)
          },
          { stream: true },
        ),
      )
      expect(code, name).toBe('model_truncated')
    }
  })

  test('whose connection is lost after its finish reason is complete', async () => {
    const reply = await exchange(
      (response, request) => {
        void beginStream(response, request)
        response.write(chatChunk({ content: 'all' }, 'stop'), () => response.destroy())
      },
      { stream: true },
    )
    expect(reply.message.content).toBe('all')
  })

  test('that stays open after its end is released after the idle timeout', async () => {
    const reply = await exchange(
      (response, request) => {
        void beginStream(response, request)
        response.write(chatChunk({ content: 'all' }, 'stop'))
      },
      { stream: true, idleTimeoutMs: 40 },
    )
    expect(reply.message.content).toBe('all')
  })

  test('with an error in it fails with that error', async () => {
    const send = (): Promise<unknown> =>
      exchange(
        (response, request) => {
          void beginStream(response, request)
          response.write(`data: {"error":{"message":"too many","code":"rate_limit_exceeded"}}\n\n`)
        },
        { stream: true },
      )
    expect(await codeOf(send)).toBe('model_rate_limited')
  })
})

describe('failures', () => {
  test('an error status is classified, with the delay that the server asked for', async () => {
    const error = await failureOf(() =>
      exchange((response) => {
        response.writeHead(429, { 'retry-after': '3' }).end('{"error":{"message":"slow down"}}')
      }),
    )
    expect(error).toMatchObject({ code: 'model_rate_limited', data: { status: 429, retryAfterMs: 3000 } })
  })

  test('an error with a truncated body keeps its status', async () => {
    const code = await codeOf(() =>
      exchange((response) => {
        response.writeHead(503, { 'content-length': '100' })
        response.write('{"error":', () => response.destroy())
      }),
    )
    expect(code).toBe('model_overloaded')
  })

  test.each([
    ['cut by the connection', { 'content-length': '500' }, '{"choices":[', 'model_truncated'],
    ['cut, but ended as if whole', {}, '{"choices":[{"message":', 'model_truncated'],
    ['empty', {}, '', 'model_truncated'],
    ['broken JSON', {}, '{"choices": nope}', 'model_malformed'],
    ['a web page', { 'content-type': 'text/html' }, '<html>hello</html>', 'model_malformed'],
  ])('a body that is %s fails', async (_name, headers, body, code) => {
    const send = (): Promise<unknown> =>
      exchange((response) => {
        response.writeHead(200, headers)
        if ('content-length' in headers) response.write(body, () => response.destroy())
        else response.end(body)
      })
    expect(await codeOf(send)).toBe(code)
  })

  test.each(['application/json', 'text/event-stream'])('a compressed %s that was not requested fails', async (type) => {
    const packed = gzipSync(JSON.stringify(chatReply('hello')))
    await using server = await ScriptedServer.start((response) => {
      if (server.requests.length > 1) return sendJson(response, chatReply('plain'))
      response.writeHead(200, { 'content-type': type, 'content-encoding': 'gzip' }).end(packed)
    })
    await using backend = openBackend(server.url)
    const said =
      'is compressed (content-encoding: gzip), but the request did not accept compression. Turn compression off'
    expect(await failureOf(() => backend.send(ask()))).toMatchObject({
      code: 'model_malformed',
      message: expect.stringContaining(said),
    })
    expect((await backend.send(ask())).message.content).toBe('plain')
  })

  test.each([
    ['a short reply', [JSON.stringify(chatReply('caf~'))], {}, false],
    ['a short reply with tokens', [JSON.stringify(chatReply('caf~'))], {}, true],
    ['a reply that is scanned for tokens', [JSON.stringify(chatReply('caf~'.repeat(2_000)))], {}, true],
    ['a reply that a thread reads', [JSON.stringify(chatReply('caf~'.repeat(20_000)))], {}, true],
    ['an event of a stream', [chatChunk({ content: 'good' }), chatChunk({ content: 'caf~' })], { stream: true }, false],
  ])('%s that is not UTF-8 fails without replacement characters', async (_name, pieces, setting, captureTokens) => {
    await using server = await ScriptedServer.start((response) => {
      const type = pieces.length > 1 ? 'text/event-stream' : 'application/json'
      response.writeHead(200, { 'content-type': type })
      // The byte is an é in Latin-1, and in UTF-8 the beginning of a character that does not go on.
      const bytes = pieces.map((piece) => Buffer.from(piece, 'latin1').map((byte) => (byte === 0x7e ? 0xe9 : byte)))
      response.end(Buffer.concat(bytes))
    })
    await using backend = openBackend(server.url, setting)
    const sink = new CollectingSink()
    const request = ask({ captureTokens, ...('stream' in setting && { stream: true, sink }) })
    expect(await failureOf(() => backend.send(request))).toMatchObject({
      code: 'model_malformed',
      message: expect.stringContaining('is not UTF-8'),
    })
    if ('stream' in setting) expect(JSON.stringify(sink)).toContain('good')
  })

  test.each([
    ['a reply', 'application/json', {}],
    ['an event of a stream', 'text/event-stream', { stream: true }],
  ])('%s without end is aborted and reported as too large', async (_name, type, setting) => {
    const piece = Buffer.alloc(4 * 1024 * 1024, ' ')
    const send = (): Promise<unknown> =>
      exchange(async (response) => {
        response.writeHead(200, { 'content-type': type })
        // Node 26 answers a write to a client that is gone without a turn of the loop, in which it would be told of that.
        for (; !response.destroyed; await nextTurn()) await new Promise((resolve) => response.write(piece, resolve))
      }, setting)
    const said = 'is larger than 67108864 bytes and was aborted. Request a shorter reply'
    expect(await failureOf(send)).toMatchObject({ code: 'model_malformed', message: expect.stringContaining(said) })
  })

  test('a server that never answers, or becomes silent, times out', async () => {
    expect(await codeOf(() => exchange(() => {}, { requestTimeoutMs: 30 }))).toBe('model_timeout')
    expect(await codeOf(() => exchange(beginStream, { stream: true, idleTimeoutMs: 30 }))).toBe('model_timeout')
  })

  test('the idle timeout limits silence, not the length of a reply', async () => {
    using time = new FakeClock('timeouts')
    const sink = new CollectingSink()
    await using server = await ScriptedServer.start(async (response, request) => {
      await beginStream(response, request)
      for (let received = 1; received <= 10; received += 1) {
        await expect.poll(() => sink.events.length).toBe(received)
        await time.pass(900)
        response.write(chatChunk({ content: 'a' }))
      }
      response.end(chatChunk({}, 'stop'))
    })
    await using backend = openBackend(server.url, { idleTimeoutMs: 1000 })
    const reply = await backend.send(ask({ stream: true, sink }))
    expect(reply.message.content).toBe('aaaaaaaaaa')
  })

  test('a refused connection, an unknown host and a broken connection are classified', async () => {
    await using server = await ScriptedServer.start((response) => response.destroy())
    await using broken = openBackend(server.url)
    expect(await codeOf(() => broken.send(ask()))).toBe('model_connect')
    await using refused = openBackend('http://127.0.0.1:9/v1')
    const error = await failureOf(() => refused.send(ask()))
    expect(error).toMatchObject({ code: 'model_connect' })
    expect(String(error)).toContain('Is the server running')
    await using unknown = openBackend('http://no-such-host.invalid/v1')
    expect(await codeOf(() => unknown.send(ask()))).toBe('model_connect')
  })

  test('an invalid header is reported as a fault of the request, not of the server', async () => {
    await using backend = openBackend('http://127.0.0.1:9/v1', { headers: { 'x-bad': 'a\nb' } })
    expect(await codeOf(() => backend.send(ask()))).toBe('model_rejected')
  })

  test('a closed backend refuses requests', async () => {
    await using server = await ScriptedServer.start(() => {})
    const backend = openBackend(server.url)
    const pending = codeOf(() => backend.send(ask()))
    await server.received(1)
    await backend.close()
    await backend.close()
    expect(await pending).toBe('closed')
    expect(await codeOf(() => backend.send(ask()))).toBe('closed')
  })
})

describe('an abort', () => {
  test('closes the socket at once and rejects with its reason', async () => {
    await using server = await ScriptedServer.start(() => {})
    await using backend = openBackend(server.url)
    const controller = new AbortController()
    const failed = failureOf(() => backend.send(ask({ signal: controller.signal })))
    await server.received(1)
    const reason = new Error('enough')
    controller.abort(reason)
    expect(await failed).toBe(reason)
    await server.requests[0]?.closed
    expect(await failureOf(() => backend.send(ask({ signal: controller.signal })))).toBe(reason)
    expect(server.requests).toHaveLength(1)
  })

  test('closes the socket during a stream', async () => {
    await using server = await ScriptedServer.start(beginStream)
    await using backend = openBackend(server.url, { stream: true })
    const controller = new AbortController()
    const failed = failureOf(() => backend.send(ask({ signal: controller.signal })))
    await server.received(1)
    controller.abort(new Error('enough'))
    expect(String(await failed)).toContain('enough')
    await server.requests[0]?.closed
  })

  test('ends a reply that is received but not yet read, and keeps the connection', async () => {
    await using server = await ScriptedServer.start((response) => sendJson(response, chatReply('x')))
    await using backend = openBackend(server.url, { options: { connections: 1 } })
    const controller = new AbortController()
    const reason = new Error('enough')
    // After the end of the reply was seen, and before the turn of the loop ends.
    const onArrival = (): void => queueMicrotask(() => controller.abort(reason))
    subscribe('undici:request:trailers', onArrival)
    try {
      expect(await failureOf(() => backend.send(ask({ signal: controller.signal })))).toBe(reason)
    } finally {
      unsubscribe('undici:request:trailers', onArrival)
    }
    expect(getEventListeners(controller.signal, 'abort')).toEqual([])
    expect((await backend.send(ask())).message.content).toBe('x')
    const [first, second] = server.requests
    expect(second?.closed).toBe(first?.closed)
  })

  test('removes a request that waits for a connection', async () => {
    const answers: (() => void)[] = []
    await using server = await ScriptedServer.start((response) => {
      answers.push(() => sendJson(response, chatReply('x')))
    })
    await using backend = openBackend(server.url, { options: { connections: 1 } })
    const first = backend.send(ask())
    const controller = new AbortController()
    const waiting = failureOf(() => backend.send(ask({ signal: controller.signal })))
    await server.received(1)
    controller.abort(new Error('enough'))
    expect(String(await waiting)).toContain('enough')
    answers[0]?.()
    await first
    const third = backend.send(ask())
    await server.received(2)
    answers[1]?.()
    expect((await third).message.content).toBe('x')
    expect(server.requests).toHaveLength(2)
  })

  test('of a thousand calls leaves no socket, timer or listener', async () => {
    await using server = await ScriptedServer.start(() => {})
    const before = activeResources()
    {
      await using backend = openBackend(server.url, { maxConcurrency: 100, options: { connections: 100 } })
      for (let round = 0; round < 10; round += 1) {
        const controller = new AbortController()
        const calls = Array.from({ length: 100 }, () =>
          failureOf(() => backend.send(ask({ signal: controller.signal }))),
        )
        await server.received((round + 1) * 100)
        expect(getEventListeners(controller.signal, 'abort')).toHaveLength(100)
        controller.abort(new Error('enough'))
        await Promise.all(calls)
        expect(getEventListeners(controller.signal, 'abort')).toHaveLength(0)
        await Promise.all(server.requests.map(({ closed }) => closed))
      }
      expect(await leftSince(before)).toEqual([])
    }
    expect(await server.openConnections()).toBe(0)
  })
})

test('a model list without end is aborted', async () => {
  await using server = await ScriptedServer.start((response) => {
    const more = Buffer.alloc(1024 * 1024, 'x')
    const send = (): void => {
      while (!response.destroyed && response.write(more));
    }
    response.on('drain', send)
    send()
  })
  await using backend = openBackend(server.url)
  await expect(backend.ask('/v1/models', new AbortController().signal)).rejects.toThrow(
    'it is larger than 8388608 bytes',
  )
  await server.requests[0]?.closed
})
