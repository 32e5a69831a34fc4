import { getEventListeners } from 'node:events'
import { describe, expect, test } from 'vitest'
import { activeResources, leftSince } from '../../../test/support/kit/active-resources.ts'
import { openBackend } from '../../../test/support/inference/open-backend.ts'
import { CollectingSink } from '../../../test/support/inference/collecting-sink.ts'
import {
  chatChunk,
  chatReply,
  ScriptedServer,
  sendJson,
  type Handler,
} from '../../../test/support/inference/scripted-server.ts'
import { plainRequest as ask } from '../../../test/support/inference/plain-request.ts'
import type { ModelRequest } from '../../apis/backend.ts'
import { modelConfigSchema } from '../config.ts'
import type { LimitChange } from '../model-client.ts'
import { Model } from './model.ts'

test('a thousand calls aborted together close all connections and leave no resource', async () => {
  await using server = await ScriptedServer.start(() => {})
  await using backend = openBackend(server.url, { maxConcurrency: 200 })
  await using model = new Model(modelConfigSchema.parse({ name: 'm', maxConcurrency: 200 }), [backend])
  const before = activeResources()
  const controller = new AbortController()
  let waiting = 0
  const hooks = { signal: controller.signal, onWaitStart: () => (waiting += 1), onWaitEnd: () => (waiting -= 1) }
  const calls = Array.from({ length: 1000 }, () => model.call(ask, hooks))
  await server.received(200)
  controller.abort(new Error('enough'))
  const replies = await Promise.all(calls)
  expect(replies.every(({ status }) => status === 'aborted')).toBe(true)
  await Promise.all(server.requests.map(({ closed }) => closed))
  expect(server.requests).toHaveLength(200)
  expect(waiting).toBe(0)
  expect(getEventListeners(controller.signal, 'abort')).toHaveLength(0)
  expect(model.status()).toMatchObject({ inFlight: 0, waiting: 0, parked: 0 })
  expect(await leftSince(before)).toEqual([])
})

test('a server that is down for a while delays calls but fails none', async () => {
  let isDown = true
  await using server = await ScriptedServer.start((response) => {
    if (isDown) sendJson(response, { error: { message: 'loading' } }, 503)
    else sendJson(response, chatReply('up'))
  })
  const changes: LimitChange[] = []
  const onLimitChange = (change: LimitChange): void => {
    changes.push(change)
    // It comes back once everybody is parked; the next probe finds it.
    if (change.kind === 'parked') isDown = false
  }
  await using backend = openBackend(server.url, { maxConcurrency: 50 })
  const config = modelConfigSchema.parse({ name: 'm', maxConcurrency: 50 })
  await using model = new Model(config, [backend], { onLimitChange, random: () => 0 })
  const { signal } = new AbortController()
  const replies = await Promise.all(Array.from({ length: 300 }, () => model.call(ask, { signal })))
  expect(replies.filter(({ status }) => status !== 'complete')).toEqual([])
  expect(changes.map(({ kind }) => kind)).toEqual(['parked', 'released'])
  expect(server.requests.length).toBeLessThanOrEqual(360)
})

test('a request that always times out at a proxy exhausts its tries, even without other replies', async () => {
  await using server = await ScriptedServer.start((response) => {
    if (server.requests.length <= 2) sendJson(response, { error: { message: 'Gateway Time-out' } }, 504)
    else sendJson(response, chatReply('quick'))
  })
  await using backend = openBackend(server.url)
  const config = modelConfigSchema.parse({ name: 'm', maxTries: 2 })
  await using model = new Model(config, [backend], { random: () => 0 })
  const reply = await model.call(ask, new AbortController())
  expect(reply).toMatchObject({ status: 'failed', tries: 2, error: { code: 'model_timeout' } })
})

describe('tokens that were reserved for a call', () => {
  /** How often the second of two calls waits for the rate limit; each reserves over half of what may be used at once. */
  const waitsAfter = async (first: Handler, { stream = false } = {}): Promise<number> => {
    await using server = await ScriptedServer.start(first)
    const config = modelConfigSchema.parse({ name: 'm', maxTries: 1, tokensPerMinute: 6000 })
    await using backend = openBackend(server.url)
    await using model = new Model(config, [backend])
    const messages: ModelRequest['messages'] = [{ role: 'user', content: 'x'.repeat(2000) }]
    const large: ModelRequest = { ...ask, messages, stream, sampling: { maxTokens: 400 } }
    await model.call(large, { signal: new AbortController().signal })
    let waits = 0
    const controller = new AbortController()
    const onWaitStart = (): void => {
      waits += 1
      controller.abort(new Error('enough'))
    }
    await model.call(large, { signal: controller.signal, onWaitStart })
    return waits
  }

  test.each<[string, Handler]>([
    ['was refused', (response) => sendJson(response, { error: { message: 'busy' } }, 503)],
    ['failed', (response) => sendJson(response, { error: { message: 'oops' } }, 500)],
    ['lost its connection', (response) => response.destroy()],
    ['used few', (response) => sendJson(response, chatReply('ok'))],
  ])('are released if the call %s', async (_name, handler) => {
    expect(await waitsAfter(handler)).toBe(0)
  })

  test.each<[string, boolean, Handler]>([
    ['whole', false, (response) => sendJson(response, chatReply('ok', { usage: undefined }))],
    [
      'streamed',
      true,
      (response) => {
        response.writeHead(200, { 'content-type': 'text/event-stream' })
        response.end(`${chatChunk({ content: 'ok' }, 'stop')}data: [DONE]\n\n`)
      },
    ],
  ])('are used if the reply has no usage: %s', async (_name, stream, handler) => {
    expect(await waitsAfter(handler, { stream })).toBe(1)
  })
})

describe('a streamed reply passed to a sink', () => {
  const good: Handler = (response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    response.end(`${chatChunk({ content: 'all' }, 'stop')}data: [DONE]\n\n`)
  }
  /** What comes of a call if the server answers so the first time, and well from then on. */
  const callAfter = async (first: Handler) => {
    let calls = 0
    await using server = await ScriptedServer.start((response, request) => {
      calls += 1
      return calls === 1 ? first(response, request) : good(response, request)
    })
    const config = modelConfigSchema.parse({ name: 'm', maxTries: 3 })
    await using backend = openBackend(server.url)
    await using model = new Model(config, [backend], { random: () => 0 })
    const sink = new CollectingSink()
    const reply = await model.call({ ...ask, stream: true, sink }, { signal: new AbortController().signal })
    expect(model.status()).toMatchObject({ inFlight: 0, tries: server.requests.length })
    return { reply, sink }
  }

  test.each<[string, Handler]>([
    ['an error status', (response) => sendJson(response, { error: { message: 'busy' } }, 503)],
    ['a lost connection', (response) => response.destroy()],
    [
      'a stream without events',
      (response) => response.writeHead(200, { 'content-type': 'text/event-stream' }).end(': hello\n\n'),
    ],
    [
      'an error as the first event',
      (response) => {
        response.writeHead(200, { 'content-type': 'text/event-stream' })
        response.end('data: {"error":{"message":"busy","type":"overloaded_error"}}\n\n')
      },
    ],
  ])('is tried again after %s, because no event was passed on', async (_name, first) => {
    const { reply, sink } = await callAfter(first)
    expect(reply).toMatchObject({ status: 'complete', tries: 2 })
    expect(sink.message.content).toBe('all')
    expect(sink.partials).toEqual([])
  })

  test.each<[string, string, string]>([
    ['cut', '', 'truncated'],
    ['refused in the middle', 'data: {"error":{"message":"busy","type":"overloaded_error"}}\n\n', 'failed'],
  ])('is not tried again after its first event: %s', async (_name, rest, status) => {
    const { reply, sink } = await callAfter((response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      response.end(chatChunk({ content: 'half' }) + rest)
    })
    expect(reply).toMatchObject({ status, tries: 1 })
    expect(sink.message.content).toBe('half')
    expect(sink.partials).toEqual([{ message: { role: 'assistant', content: 'half' } }])
  })
})
