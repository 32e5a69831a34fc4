import { setImmediate as nextTurn } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { admin, OpenGateway } from '../support/gateway/open-gateway.ts'
import { beginEvents, doneEvent, tokenChunk, usageChunk } from '../support/gateway/token-chunks.ts'
import { temporaryFolder } from '../support/store/fixtures.ts'
import { chatReply, ScriptedServer, sendJson } from '../support/inference/scripted-server.ts'

const body = { model: 'm', messages: [{ role: 'user', content: 'hello' }] }

async function over(server: ScriptedServer, folder?: string): Promise<OpenGateway> {
  const models = [{ name: 'm', maxTries: 1, backends: [{ url: server.url }] }]
  return OpenGateway.open({ models, ...(folder !== undefined && { folder }) })
}

/** Every reply has a number, that of its request; none is sent before `answering` resolves. */
function countingServer(answering?: Promise<void>): Promise<ScriptedServer> {
  let count = 0
  return ScriptedServer.start(async (response) => {
    count += 1
    const text = `Hello ${count}`
    await answering
    sendJson(response, chatReply(text))
  })
}

/** Acts just when the next reply is recorded, and only its durability is waited for. */
function onceRecorded({ store: { journal } }: OpenGateway, act: () => void): void {
  const durable = journal.durable.bind(journal)
  journal.durable = () => {
    journal.durable = durable
    const pending = durable()
    act()
    return pending
  }
}

test('a retry gets its recorded reply, also if an equal reply was recorded since', async () => {
  let count = 0
  await using server = await ScriptedServer.start((response) => {
    count += 1
    sendJson(response, chatReply('Hello', { id: `chatcmpl-${count}` }))
  })
  await using open = await over(server)
  const { id, caller } = await open.session()
  const more = [
    { role: 'assistant', content: 'Hello' },
    { role: 'user', content: 'more' },
  ]
  const next = { ...body, messages: [...body.messages, ...more] }
  await open.ask(caller, body)
  const { document } = await open.ask(caller, next)
  await open.ask(caller, body)
  expect((await open.ask(caller, next, { retryCount: 1 })).document['id']).toBe(document['id'])
  expect(server.requests).toHaveLength(3)
  expect(await open.nodes(id)).toHaveLength(5)
})

test('a retry of a running request gets the same reply', async () => {
  const answer = Promise.withResolvers<void>()
  await using server = await ScriptedServer.start(async (response) => {
    await answer.promise
    sendJson(response, chatReply('Hello'))
  })
  await using open = await over(server)
  const { id, caller } = await open.session()
  const first = open.send(caller, body)
  await server.received(1)
  const second = open.send(caller, body, { retryCount: 1 })
  answer.resolve()
  await Promise.all([first.done, second.done])
  expect(server.requests).toHaveLength(1)
  expect(first.client.document).toMatchObject({ id: 'chatcmpl-1', choices: [{ message: { content: 'Hello' } }] })
  expect(second.client.document).toMatchObject({ id: 'chatcmpl-1', choices: [{ message: { content: 'Hello' } }] })
  expect(await open.nodes(id)).toHaveLength(2)
  expect(open.gateway.status().interactions).toMatchObject({ complete: 1, repeated: 1 })
})

test('a request abandoned by its first client continues for its retry', async () => {
  const answer = Promise.withResolvers<void>()
  await using server = await ScriptedServer.start(async (response) => {
    beginEvents(response)
    response.write(tokenChunk('Hel', { token: 1 }))
    await answer.promise
    response.end(tokenChunk('lo', { finish: 'stop' }) + usageChunk(1, 2) + doneEvent)
  })
  await using open = await over(server)
  const { id, caller } = await open.session()
  const streamed = { ...body, stream: true }
  const first = open.send(caller, streamed)
  await first.client.received(1)
  const second = open.send(caller, streamed, { retryCount: 1 })
  await nextTurn()
  first.client.leave()
  answer.resolve()
  await Promise.all([first.done, second.done])
  expect(first.client.isEnded).toBe(false)
  // From the beginning, though it came late.
  expect(JSON.stringify(second.client.events)).toContain('Hello')
  expect(second.client.events.at(-1)).toBe('[DONE]')
  expect((await open.nodes(id)).map(({ call }) => call?.replyId)).toEqual([undefined, 'chatcmpl-1'])
})

test('a retry does not get the reply of another client with the same request', async () => {
  const answer = Promise.withResolvers<void>()
  await using server = await countingServer(answer.promise)
  await using open = await over(server)
  const { id, caller } = await open.session()
  const first = open.send(caller, body)
  await server.received(1)
  const second = open.send(caller, body)
  await server.received(2)
  // Its connection is gone: only what it was to get is given up.
  first.client.leave()
  await first.done
  const retried = open.send(caller, body, { retryCount: 1 })
  await server.received(3)
  // Two are under way, and nobody can say which of them this one is.
  const another = open.send(caller, body, { retryCount: 1 })
  await server.received(4)
  answer.resolve()
  await Promise.all([second.done, retried.done, another.done])
  const received = [second, retried, another].map(({ client }) => /Hello \d/.exec(client.text)?.[0])
  expect(received).toEqual(['Hello 2', 'Hello 3', 'Hello 4'])
  const nodes = await open.nodes(id)
  expect(nodes.map(({ discarded }) => discarded?.why)).toEqual([
    undefined,
    'client_gone',
    undefined,
    undefined,
    undefined,
  ])
})

test('a retry gets the reply that is being written to disk', async () => {
  await using server = await ScriptedServer.start((response) => sendJson(response, chatReply('Hello')))
  await using open = await over(server)
  const { id, caller } = await open.session()
  const first = open.send(caller, body)
  const retried = Promise.withResolvers<ReturnType<OpenGateway['send']>>()
  onceRecorded(open, () => {
    first.client.leave()
    retried.resolve(open.send(caller, body, { retryCount: 1 }))
  })
  const { client, done } = await retried.promise
  await Promise.all([first.done, done])
  expect(client.document).toMatchObject({ choices: [{ message: { content: 'Hello' } }] })
  expect(server.requests).toHaveLength(1)
  expect(await open.nodes(id)).toHaveLength(2)
})

test('of two replies to equal requests, a retry gets the undelivered one first', async () => {
  await using server = await countingServer()
  await using open = await over(server)
  const { caller } = await open.session()
  const first = open.send(caller, body)
  onceRecorded(open, () => first.client.leave())
  await first.done
  await open.ask(caller, body)
  for (const text of ['Hello 1', 'Hello 2']) {
    expect((await open.ask(caller, body, { retryCount: 1 })).text).toContain(text)
  }
  expect(server.requests).toHaveLength(2)
})

test('a reply delivered to a retry counts as delivered', async () => {
  const answer = Promise.withResolvers<void>()
  await using server = await countingServer(answer.promise)
  await using open = await over(server)
  const { caller } = await open.session()
  const first = open.send(caller, body)
  await server.received(1)
  const joined = open.send(caller, body, { retryCount: 1 })
  await nextTurn()
  first.client.leave()
  answer.resolve()
  await Promise.all([first.done, joined.done])
  expect(joined.client.text).toContain('Hello 1')
  await open.ask(caller, body)
  expect((await open.ask(caller, body, { retryCount: 1 })).text).toContain('Hello 2')
})

test('a request abandoned by all its clients is aborted', async () => {
  await using server = await ScriptedServer.start((response) => {
    beginEvents(response)
    response.write(tokenChunk('Hel', { token: 1 }))
  })
  await using open = await over(server)
  const { id, caller } = await open.session()
  const streamed = { ...body, stream: true }
  const first = open.send(caller, streamed)
  await first.client.received(1)
  const second = open.send(caller, streamed, { retryCount: 1 })
  await nextTurn()
  first.client.leave()
  second.client.leave()
  await Promise.all([first.done, second.done])
  await server.requests[0]?.closed
  expect((await open.nodes(id))[1]?.discarded?.why).toBe('client_gone')
})

test('a retry of a completed request gets the recorded reply, whole or as a stream', async () => {
  await using server = await ScriptedServer.start((response, request) => {
    if (!request.body.includes('"stream":true')) return sendJson(response, chatReply('Hello'))
    beginEvents(response)
    response.end(tokenChunk('Hello', { id: 'chatcmpl-2', token: 1, finish: 'stop' }) + usageChunk(1, 1) + doneEvent)
    return undefined
  })
  await using open = await over(server)
  const { id, caller } = await open.session()
  for (const stream of [false, true]) {
    const first = await open.ask(caller, { ...body, stream })
    const again = await open.ask(caller, { ...body, stream }, { retryCount: 1 })
    expect(again.status).toBe(200)
    expect(again.text).toContain('Hello')
    expect(again.text).toContain(stream ? 'chatcmpl-2' : 'chatcmpl-1')
    expect(again.events.at(-1)).toBe(first.events.at(-1))
  }
  expect(server.requests).toHaveLength(2)
  expect(await open.nodes(id)).toHaveLength(3)
})

test('a request without a retry count, with another body or after a failure is sampled again', async () => {
  let failures = 1
  await using server = await ScriptedServer.start((response) => {
    if (failures > 0) sendJson(response, { error: { message: 'broken' } }, 500)
    else sendJson(response, chatReply('Hello'))
    failures -= 1
  })
  await using open = await over(server)
  const { id, caller } = await open.session()
  expect((await open.ask(caller, body)).status).toBe(500)
  expect((await open.ask(caller, body, { retryCount: 1 })).status).toBe(200)
  await open.ask(caller, body)
  await open.ask(caller, { ...body, temperature: 0.5 }, { retryCount: 1 })
  await open.ask(caller, { ...body, temperature: 0.7 }, { retryCount: 1 })
  expect(server.requests).toHaveLength(5)
  // Siblings: one prompt, four samples.
  expect((await open.nodes(id)).map(({ parent }) => parent)).toEqual([null, 0, 0, 0, 0])
})

test('two sessions do not share replies', async () => {
  await using server = await ScriptedServer.start((response) => sendJson(response, chatReply('Hello')))
  await using open = await over(server)
  for (let turn = 0; turn < 2; turn += 1) await open.ask((await open.session()).caller, body, { retryCount: 1 })
  expect(server.requests).toHaveLength(2)
})

test('a retry that joins a running request gets the complete original reply', async () => {
  const answer = Promise.withResolvers<void>()
  const logprobs = { content: [{ token: 'Hello', logprob: -0.5, bytes: null, top_logprobs: [] }] }
  const choice = { index: 0, message: { role: 'assistant', content: 'Hello' }, finish_reason: 'stop', logprobs }
  await using server = await ScriptedServer.start(async (response) => {
    await answer.promise
    sendJson(response, chatReply('', { choices: [choice], system_fingerprint: 'fp' }))
  })
  await using open = await over(server)
  const { caller } = await open.session()
  const asking = { ...body, logprobs: true }
  const first = open.send(caller, asking)
  await server.received(1)
  const second = open.send(caller, asking, { retryCount: 1 })
  answer.resolve()
  await Promise.all([first.done, second.done])
  expect(first.client.document).toMatchObject({ choices: [{ logprobs }], system_fingerprint: 'fp' })
  expect(second.client.document).toEqual(first.client.document)
})

test('a reply is not sampled again if its client disconnects while it is written to disk', async () => {
  await using server = await ScriptedServer.start((response) => sendJson(response, chatReply('Hello')))
  await using open = await over(server)
  const { id, caller } = await open.session()
  const first = open.send(caller, body)
  onceRecorded(open, () => first.client.leave())
  await first.done
  const again = await open.ask(caller, body, { retryCount: 1 })
  expect(again.document).toMatchObject({ id: 'chatcmpl-1' })
  expect(server.requests).toHaveLength(1)
  expect(await open.nodes(id)).toHaveLength(2)
})

test('the next process repeats recorded replies to retries', async () => {
  using folder = temporaryFolder()
  await using server = await ScriptedServer.start((response) => sendJson(response, chatReply('Hello')))
  let caller
  {
    await using open = await over(server, folder.path)
    ;({ caller } = await open.session())
    expect((await open.ask(caller, body)).status).toBe(200)
  }
  await using open = await over(server, folder.path)
  const again = await open.ask(caller, body, { retryCount: 1 })
  expect(again.document).toMatchObject({ id: 'chatcmpl-1', choices: [{ message: { content: 'Hello' } }] })
  expect(server.requests).toHaveLength(1)
})

test('a reward for a reply id that occurs twice goes to the latest reply; a node number goes to that node', async () => {
  await using server = await ScriptedServer.start((response) => sendJson(response, chatReply('Hello')))
  await using open = await over(server)
  const { id, caller } = await open.session()
  for (let turn = 0; turn < 2; turn += 1) await open.ask(caller, body)
  const check = async (): Promise<void> => {
    expect(await open.gateway.reward(admin, id, { reward: 1, interactionId: 'chatcmpl-1' })).toBe(2)
    for (const node of [1, 2]) expect(await open.gateway.reward(admin, id, { reward: node, node })).toBe(node)
    // What was asked is no reply.
    for (const node of [0, 3]) {
      await expect(open.gateway.reward(admin, id, { reward: 1, node })).rejects.toMatchObject({ data: { status: 404 } })
    }
    const both = { reward: 1, node: 1, interactionId: 'chatcmpl-1' }
    await expect(open.gateway.reward(admin, id, both)).rejects.toMatchObject({ code: 'usage' })
    expect(open.store.reader.sessions.rewardsOf(id)).toMatchObject([
      { node: 1, value: 1 },
      { node: 2, value: 2 },
    ])
  }
  await check()
  await open.gateway.endSession(admin, id)
  await check()
})
