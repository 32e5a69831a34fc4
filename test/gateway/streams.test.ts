import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { expect, test } from 'vitest'
import { chatReply, ScriptedServer, sendJson, type Handler } from '../support/inference/scripted-server.ts'
import { runFiles } from '../../src/store/index.ts'
import { admin, OpenGateway } from '../support/gateway/open-gateway.ts'
import { beginEvents, doneEvent, tokenChunk, usageChunk } from '../support/gateway/token-chunks.ts'

const body = { model: 'm', stream: true, messages: [{ role: 'user', content: 'hello' }] }

async function over(
  handler: Handler,
  more: object = {},
): Promise<AsyncDisposable & { server: ScriptedServer; open: OpenGateway }> {
  const server = await ScriptedServer.start(handler)
  const open = await OpenGateway.open({
    models: [{ name: 'm', maxTries: 1, backends: [{ url: server.url }], ...more }],
  })
  return {
    server,
    open,
    [Symbol.asyncDispose]: async () => {
      await open[Symbol.asyncDispose]()
      await server[Symbol.asyncDispose]()
    },
  }
}

const whole: Handler = (response) => {
  beginEvents(response)
  response.write(tokenChunk('Hel', { token: 1, promptIds: [5, 6] }))
  response.write(tokenChunk('lo', { token: 2 }))
  response.end(tokenChunk('', { finish: 'stop' }) + usageChunk(2, 2) + doneEvent)
}

test('chunks are passed on at once, without fields that the client did not request', async () => {
  const next = Promise.withResolvers<void>()
  await using setup = await over(async (response) => {
    beginEvents(response)
    response.write(tokenChunk('Hel', { token: 1, promptIds: [5, 6] }))
    // The rest comes only when the client has seen this.
    await next.promise
    response.write(tokenChunk('lo', { token: 2 }))
    response.end(tokenChunk('', { finish: 'stop' }) + usageChunk(2, 2) + doneEvent)
  })
  const { open, server } = setup
  const { id, caller } = await open.session()
  const { client, done } = open.send(caller, body)
  await client.received(1)
  next.resolve()
  await done
  expect(client.isEnded).toBe(true)
  expect(client.events).toEqual([
    expect.objectContaining({
      choices: [{ index: 0, delta: { content: 'Hel' }, finish_reason: null, logprobs: null }],
    }),
    expect.objectContaining({ choices: [{ index: 0, delta: { content: 'lo' }, finish_reason: null, logprobs: null }] }),
    expect.objectContaining({ choices: [{ index: 0, delta: { content: '' }, finish_reason: 'stop', logprobs: null }] }),
    '[DONE]',
  ])
  expect(client.text).not.toContain('token_ids')
  expect(JSON.parse(server.requests[0]?.body ?? '')).toEqual({
    ...body,
    logprobs: true,
    return_token_ids: true,
    stream_options: { include_usage: true },
  })
  const [, reply] = await open.nodes(id)
  expect(reply).toMatchObject({
    sampled: true,
    message: { role: 'assistant', content: 'Hello' },
    call: { replyId: 'chatcmpl-1', api: 'chat', usage: { input: 2, output: 2 }, finishReason: 'stop' },
  })
  expect(Array.from(reply?.tokens?.ids ?? [])).toEqual([1, 2])
  expect(Array.from(reply?.tokens?.promptIds ?? [])).toEqual([5, 6])
})

test('a client gets the fields that it requested', async () => {
  await using setup = await over(whole)
  const { caller } = await setup.open.session()
  const wanted = { logprobs: true, return_token_ids: true, stream_options: { include_usage: true } }
  const client = await setup.open.ask(caller, { ...body, ...wanted })
  expect(client.events).toHaveLength(5)
  expect(client.events[0]).toMatchObject({ prompt_token_ids: [5, 6], choices: [{ token_ids: [1] }] })
  expect(client.events[3]).toMatchObject({ usage: { prompt_tokens: 2 } })
})

test('the end of a stream is held back until the reply is on disk', async () => {
  await using setup = await over(whole)
  const { open } = setup
  const { id, caller } = await open.session()
  using blocker = new DatabaseSync(join(open.store.folder, runFiles.database))
  blocker.exec('BEGIN IMMEDIATE')
  const { client, done } = open.send(caller, body)
  // What the database has when the third event comes, with which the end begins.
  const recordedBefore = client.received(3).then(() => Array.from(open.store.reader.sessions.nodesOf(id)).length)
  // From here on nothing keeps the end back but the database.
  await expect.poll(async () => (await open.gateway.session(caller, id)).interactions).toBe(1)
  blocker.exec('ROLLBACK')
  await done
  expect(await recordedBefore).toBe(2)
  expect(client.events.at(-1)).toBe('[DONE]')
  expect(await open.nodes(id)).toHaveLength(2)
})

test('outside of sessions a stream is passed on unchanged and nothing is recorded', async () => {
  await using setup = await over(whole)
  const client = await setup.open.ask(admin, body)
  expect(setup.server.requests[0]?.body).toBe(JSON.stringify(body))
  expect(client.events).toHaveLength(5)
  expect(client.events[0]).toMatchObject({ choices: [{ token_ids: [1] }] })
  await setup.open.store.journal.durable()
  expect(setup.open.store.reader.counts().nodes).toBe(0)
})

test('a client that disconnects aborts the generation, and the partial reply is a lost sample', async () => {
  await using setup = await over((response) => {
    beginEvents(response)
    response.write(tokenChunk('Hel', { token: 1, promptIds: [5, 6] }))
  })
  const { open, server } = setup
  const { id, caller } = await open.session()
  const { client, done } = open.send(caller, body)
  await client.received(1)
  client.leave()
  await done
  await server.requests[0]?.closed
  expect(client.isEnded).toBe(false)
  const [, lost] = await open.nodes(id)
  expect(lost).toMatchObject({
    sampled: true,
    message: { content: 'Hel' },
    discarded: { why: 'client_gone', replyId: 'chatcmpl-1' },
  })
  expect(lost?.call).toBeUndefined()
  expect(Array.from(lost?.tokens?.ids ?? [])).toEqual([1])
  expect(await open.gateway.session(caller, id)).toMatchObject({
    interactions: 0,
    discarded: 1,
    used: { requests: 1, tokens: 1 },
  })
})

const spoilt: [string, Handler, string][] = [
  ['cut', (response) => response.destroy(), 'truncated'],
  ['ended without a finish', (response) => response.end(), 'truncated'],
  ['malformed', (response) => response.end('data: {"choices":[{\n\n'), 'failed'],
  ['an error', (response) => response.end('data: {"error":{"message":"out of memory","code":500}}\n\n'), 'failed'],
]

test.each(spoilt)('a stream that is %s is never taken as complete', async (_, spoil, why) => {
  await using setup = await over(async (response, request) => {
    beginEvents(response)
    response.write(tokenChunk('Hel', { token: 1 }))
    await new Promise((resolve) => setImmediate(resolve))
    await spoil(response, request)
  })
  const { open } = setup
  const { id, caller } = await open.session()
  const client = await open.ask(caller, body)
  expect(client.isEnded).toBe(true)
  expect(client.text).not.toContain('[DONE]')
  expect(client.events.at(-1)).toMatchObject({ error: { message: expect.any(String) } })
  const nodes = await open.nodes(id)
  expect(nodes.filter(({ call }) => call)).toEqual([])
  expect(nodes.find(({ sampled }) => sampled)).toMatchObject({ message: { content: 'Hel' }, discarded: { why } })
})

/** What a backend says of its tokens in the event that spoils the stream. */
const spoiltTokens: [string, object][] = [
  ['an id that is none', { token_ids: [2, 'x'], logprobs: { content: [{ logprob: -1 }, { logprob: -1 }] } }],
  ['a log-probability that is none', { token_ids: [2], logprobs: { content: [{ logprob: 'x' }] } }],
  ['fewer log-probabilities than ids', { token_ids: [2, 3], logprobs: { content: [{ logprob: -1 }] } }],
]

test.each(spoiltTokens)(
  'if a stream contains %s, the tokens before it are kept with the lost sample',
  async (_, tokens) => {
    await using setup = await over((response) => {
      beginEvents(response)
      response.write(tokenChunk('Hel', { token: 1, promptIds: [5, 6] }))
      const choices = [{ index: 0, delta: { content: 'lo' }, finish_reason: null, ...tokens }]
      response.write(`data: ${JSON.stringify({ id: 'chatcmpl-1', choices })}\n\n`)
      response.end(tokenChunk('!', { token: 4, finish: 'stop' }) + doneEvent)
    })
    const { open } = setup
    const { id, caller } = await open.session()
    expect((await open.ask(caller, body)).text).not.toContain('[DONE]')
    const [, lost] = await open.nodes(id)
    expect(lost).toMatchObject({
      discarded: { why: 'failed', usage: { output: 1 } },
      tokens: { promptIds: Int32Array.of(5, 6), ids: Int32Array.of(1), logprobs: Float32Array.of(-0.01) },
    })
    expect(lost?.message.content).toMatch(/^Hel/)
  },
)

test('an error before the first byte keeps its status, in an error of the API', async () => {
  await using setup = await over((response) =>
    sendJson(response, { error: { message: 'no such thing', type: 'oops' } }, 422),
  )
  const { open } = setup
  const { id, caller } = await open.session()
  const client = await open.ask(caller, body)
  expect(client.status).toBe(422)
  expect(client.document).toMatchObject({ error: { message: 'no such thing' } })
  expect((await open.nodes(id)).map(({ sampled }) => sampled)).toEqual([false])
})

test('a client that does not read pauses the backend', async () => {
  let sent = 0
  const chunk = tokenChunk('x'.repeat(10_000))
  await using setup = await over(async (response) => {
    beginEvents(response)
    for (; sent < 2_000; sent += 1) {
      if (!response.write(chunk)) await new Promise((resolve) => response.once('drain', resolve))
    }
    response.end(tokenChunk('', { finish: 'stop' }) + doneEvent)
  })
  const { open } = setup
  const { caller } = await open.session()
  const { client, done } = open.send(caller, body)
  client.isFull = true
  await client.received(1)
  // It stops growing: what the kernel takes for us is far less than the 20 MB.
  let before = -1
  await expect
    .poll(
      () => {
        const isStill = sent === before
        before = sent
        return isStill
      },
      { interval: 200 },
    )
    .toBe(true)
  expect(sent).toBeLessThan(1_500)
  expect(client.eventCount).toBeLessThan(200)
  client.resume()
  await done
  expect(client.eventCount).toBe(2_002)
})

test('a client of another API gets the stream in its own API, and tokens are recorded', async () => {
  await using setup = await over(whole)
  const { open, server } = setup
  const { id, caller } = await open.session()
  const request = { model: 'm', max_tokens: 50, stream: true, messages: [{ role: 'user', content: 'hello' }] }
  const client = await open.ask(caller, request, { api: 'messages' })
  const kinds = client.text.split('\n').filter((line) => line.startsWith('event: '))
  expect(kinds[0]).toBe('event: message_start')
  expect(kinds.at(-1)).toBe('event: message_stop')
  expect(JSON.parse(server.requests[0]?.body ?? '')).toMatchObject({ stream: true, return_token_ids: true })
  const [, reply] = await open.nodes(id)
  expect(reply?.call).toMatchObject({ api: 'messages', replyId: expect.stringMatching(/^msg_/) })
  expect(client.text).toContain(reply?.call?.replyId)
  expect(Array.from(reply?.tokens?.ids ?? [])).toEqual([1, 2])
})

test('a client gets a stream if the backend answers a stream request with a whole reply', async () => {
  await using setup = await over((response) => sendJson(response, chatReply('Hello')))
  const { open } = setup
  const { id, caller } = await open.session()
  const client = await open.ask(caller, body)
  expect(client.events.at(-1)).toBe('[DONE]')
  expect(JSON.stringify(client.events)).toContain('Hello')
  expect((await open.nodes(id))[1]?.call?.replyId).toBe('chatcmpl-1')
})

test('a field that the API of the backend does not support is refused by name', async () => {
  await using setup = await over(whole)
  const { caller } = await setup.open.session()
  const tool_choice = { type: 'web_search' }
  const request = { model: 'm', input: 'hello', tools: [tool_choice], tool_choice }
  const client = await setup.open.ask(caller, request, { api: 'responses' })
  expect(client.status).toBe(400)
  expect(client.text).toContain('web_search')
  expect(setup.server.requests).toEqual([])
})

test('a stream that breaks after its finish reason is complete, and the client gets a proper end', async () => {
  await using setup = await over((response) => {
    beginEvents(response)
    response.write(tokenChunk('Hello', { token: 1, promptIds: [5] }) + tokenChunk('', { finish: 'stop' }), () => {
      response.destroy()
    })
  })
  const { open } = setup
  const { id, caller } = await open.session()
  const client = await open.ask(caller, body)
  expect(client.events.at(-1)).toBe('[DONE]')
  expect((await open.nodes(id))[1]?.call?.finishReason).toBe('stop')
})

test('a stream that ends without a finish reason is not complete', async () => {
  await using setup = await over((response) => {
    beginEvents(response)
    response.end(tokenChunk('Hel', { token: 1 }) + doneEvent)
  })
  const { open } = setup
  const { id, caller } = await open.session()
  const client = await open.ask(caller, body)
  expect(client.text).not.toContain('[DONE]')
  expect((await open.nodes(id))[1]?.discarded?.why).toBe('truncated')
})

test.each([
  ['vLLM', { stop_reason: 'STOP' }, 'stop_sequence'],
  ['SGLang', { matched_stop: 'STOP' }, 'stop_sequence'],
  ['a token that ends', { stop_reason: 151_645 }, 'end_turn'],
])('a Messages client gets the stop sequence that ended the reply: %s', async (_name, end, reason) => {
  await using setup = await over((response, { body: asked }) => {
    const choice = { index: 0, finish_reason: 'stop', ...end }
    if (!asked.includes('"stream":true')) {
      const message = { role: 'assistant', content: 'before' }
      return sendJson(response, chatReply('', { choices: [{ ...choice, message }] }))
    }
    beginEvents(response)
    response.end(`data: ${JSON.stringify({ choices: [{ ...choice, delta: { content: 'before' } }] })}\n\n${doneEvent}`)
  })
  const request = { model: 'm', max_tokens: 9, messages: body.messages, stop_sequences: ['STOP'] }
  const ended = { stop_reason: reason, stop_sequence: reason === 'stop_sequence' ? 'STOP' : null }
  const ask = (more: object): ReturnType<OpenGateway['ask']> =>
    setup.open.ask(admin, { ...request, ...more }, { api: 'messages' })
  expect((await ask({})).document).toMatchObject(ended)
  expect((await ask({ stream: true })).events).toContainEqual(
    expect.objectContaining({ type: 'message_delta', delta: expect.objectContaining(ended) as object }),
  )
})
