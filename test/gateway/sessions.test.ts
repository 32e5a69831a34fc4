import { setImmediate } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { admin, OpenGateway } from '../support/gateway/open-gateway.ts'
import { beginEvents, tokenChunk } from '../support/gateway/token-chunks.ts'
import { gatewayEvents, type Caller, type GatewayEvent } from '../../src/gateway/index.ts'
import { chatReply, ScriptedServer, sendJson } from '../support/inference/scripted-server.ts'
import { modelConfigSchema } from '../../src/inference/index.ts'
import type { Message, MessageNode } from '../../src/schema/index.ts'
import { activeResources, leftSince } from '../support/kit/active-resources.ts'
import { calls, ScriptedBackend } from '../../src/testing/index.ts'

const question: Message = { role: 'user', content: 'hello' }
const body = { model: 'm', messages: [question] }
const stranger: Caller = { kind: 'admin', tenant: 'other' }

/** A gateway whose model says what it is told. */
function scripted(
  script: ConstructorParameters<typeof ScriptedBackend>[0] = () => 'Hello',
  more: Partial<Parameters<typeof OpenGateway.open>[0]> = {},
): Promise<OpenGateway> {
  const backends = { m: [new ScriptedBackend(script)] }
  const models = [{ name: 'm', backends: [{ url: 'http://scripted.invalid' }], price: { input: 0, output: 1_000_000 } }]
  return OpenGateway.open({ models, backends, ...more })
}

test('a group of sessions starts together, and each session has its own key', async () => {
  await using open = await scripted()
  const { gateway } = open
  const { groupId, sessions } = await gateway.startSessions(admin, { groupSize: 3, taskId: 't1', metadata: { a: 1 } })
  expect(sessions).toHaveLength(3)
  for (const { id, key } of sessions) {
    expect(gateway.callerFor(key)).toEqual({ kind: 'session', tenant: 'acme', sessionId: id })
    expect(id).toMatch(/^[\w-]{1,64}$/)
  }
  expect(gateway.sessions(admin, { group: groupId, limit: 10 }).sessions).toMatchObject(
    sessions.map(({ id }) => ({ id, groupId, taskId: 't1', metadata: { a: 1 }, state: 'open' })),
  )
  const more = await gateway.startSessions(admin, { groupId })
  expect(more.groupId).toBe(groupId)
  expect(gateway.sessions(admin, { group: groupId, limit: 10 }).sessions).toHaveLength(4)
})

test('a tenant sees only its own sessions, and a session key only its session', async () => {
  await using open = await scripted()
  const { gateway } = open
  const one = await open.session()
  const two = await open.session()
  for (const caller of [stranger, two.caller]) {
    await expect(gateway.session(caller, one.id)).rejects.toMatchObject({ code: 'session_not_found' })
    await expect(gateway.endSession(caller, one.id)).rejects.toMatchObject({ code: 'session_not_found' })
    await expect(gateway.reward(caller, one.id, { reward: 1 })).rejects.toMatchObject({ code: 'session_not_found' })
    expect((await open.ask(caller, body, { sessionId: one.id })).status).toBe(404)
  }
  expect(gateway.sessions(stranger, { limit: 10 })).toEqual({ sessions: [], after: null })
  expect(() => gateway.sessions(one.caller, { limit: 10 })).toThrow('admin key')
  await expect(gateway.startSessions(one.caller, {})).rejects.toMatchObject({ data: { status: 403 } })
  expect((await open.ask(admin, body, { sessionId: one.id })).status).toBe(200)
  expect(await open.nodes(one.id)).toHaveLength(2)
})

test('invalid session options are refused', async () => {
  await using open = await scripted()
  for (const wrong of [{ groupSize: 0 }, { ttlSeconds: -1 }, { groupId: '../x' }, { limits: { maxRequests: 0 } }]) {
    await expect(open.gateway.startSessions(admin, wrong)).rejects.toMatchObject({ code: 'usage' })
  }
})

test('a conversation with tools becomes one path of nodes', async () => {
  await using open = await scripted(({ messages }) =>
    messages.length === 1 ? calls({ add: { a: 1, b: 2 } }) : 'three',
  )
  const { id, caller } = await open.session()
  const first = await open.ask(caller, body)
  const { choices } = first.document as { choices: { message: Message }[] }
  const called = choices[0]?.message as Message
  await open.ask(caller, {
    ...body,
    messages: [question, called, { role: 'tool', tool_call_id: 'call_0', content: '3' }],
  })
  const nodes = await open.nodes(id)
  expect(nodes.map(({ message: { role }, parent, sampled }) => [role, parent, sampled])).toEqual([
    ['user', null, false],
    ['assistant', 0, true],
    ['tool', 1, false],
    ['assistant', 2, true],
  ])
})

test('an exceeded limit is refused by name in an error of the API, and the remaining budget is shown', async () => {
  await using open = await scripted()
  const { id, caller } = await open.session({ limits: { maxRequests: 2, maxTokens: 100, maxCost: 50 } })
  await open.ask(caller, body)
  const view = await open.gateway.session(caller, id)
  expect(view.used).toMatchObject({ requests: 1, concurrent: 0 })
  expect(view.used.tokens).toBeGreaterThan(0)
  expect(view.remaining).toEqual({
    requests: 1,
    tokens: 100 - view.used.tokens,
    cost: 50 - (view.used.cost ?? Number.NaN),
    concurrent: null,
  })
  await open.ask(caller, body)
  const refused = await open.ask(caller, { ...body, max_tokens: 1 }, { api: 'messages' })
  expect(refused.status).toBe(429)
  expect(refused.headers['x-should-retry']).toBe('false')
  expect(refused.document).toMatchObject({ type: 'error', error: { type: 'rate_limit_error' } })
  expect(refused.text).toContain('maxRequests of 2')
})

test('token limits apply if a server does not report usage', async () => {
  await using server = await ScriptedServer.start((response) =>
    sendJson(response, chatReply('x'.repeat(400), { usage: undefined })),
  )
  const models = [{ name: 'm', backends: [{ url: server.url }], price: { input: 0, output: 1_000_000 } }]
  await using open = await OpenGateway.open({ models })
  const { id, caller } = await open.session({ limits: { maxTokens: 90 } })
  expect((await open.ask(caller, body)).status).toBe(200)
  expect((await open.gateway.session(caller, id)).used).toMatchObject({ tokens: 100, cost: 100 })
  expect((await open.ask(caller, body)).text).toContain('maxTokens of 90')
})

test('the cost of a session is unknown if one of its replies has no price', async () => {
  await using server = await ScriptedServer.start((response) => sendJson(response, chatReply('x')))
  const backends = [{ url: server.url }]
  const models = [
    { name: 'm', backends, price: { input: 0, output: 0 } },
    { name: 'own', backends },
  ]
  await using open = await OpenGateway.open({ models })
  const { id, caller } = await open.session()
  expect((await open.gateway.session(caller, id)).used.cost).toBe(0)
  await open.ask(caller, body)
  expect((await open.gateway.session(caller, id)).used.cost).toBe(0)
  await open.ask(caller, { ...body, model: 'own' })
  expect((await open.gateway.session(caller, id)).used.cost).toBeNull()
  // The same from disk.
  expect((await open.gateway.endSession(admin, id)).used.cost).toBeNull()
  expect((await open.gateway.session(caller, id)).used.cost).toBeNull()
})

test('a session runs at most maxConcurrent requests at once', async () => {
  const answer = Promise.withResolvers<string>()
  await using open = await scripted(() => answer.promise)
  const { id, caller } = await open.session({ limits: { maxConcurrent: 2 } })
  const running = [open.send(caller, body), open.send(caller, body)]
  await expect.poll(async () => (await open.gateway.session(caller, id)).used.concurrent).toBe(2)
  const refused = await open.ask(caller, body)
  expect(refused.status).toBe(429)
  expect(refused.headers['retry-after']).toBe('1')
  answer.resolve('Hello')
  await Promise.all(running.map(({ done }) => done))
  expect((await open.ask(caller, body)).status).toBe(200)
  // Branches of one prompt.
  expect((await open.nodes(id)).map(({ parent }) => parent)).toEqual([null, 0, 0, 0])
})

test('an ended session refuses requests with 410, accepts rewards, and can be ended again', async () => {
  await using open = await scripted()
  const { id, key, caller } = await open.session({ selfManaged: true })
  const reply = await open.ask(caller, body)
  const interactionId = reply.document['id'] as string
  const ended = await open.gateway.endSession(caller, id)
  expect(ended).toMatchObject({ state: 'ended', interactions: 1, alarms: ['tokens_missing'] })
  const refused = await open.ask(caller, body)
  expect(refused.status).toBe(410)
  expect(refused.document).toMatchObject({ error: { code: 'session_ended' } })
  expect(open.gateway.callerFor(key)).toEqual(caller)
  expect(await open.gateway.reward(caller, id, { reward: 0.5 })).toBeNull()
  expect(await open.gateway.reward(caller, id, { reward: 1, interactionId })).toBe(1)
  await expect(open.gateway.reward(caller, id, { reward: 1, interactionId: 'no' })).rejects.toMatchObject({
    code: 'usage',
    message: expect.stringContaining('has no reply no; `interactionId` is the `id` of a reply') as string,
  })
  // Sums of larger ones might be none any more.
  for (const reward of [Number.NaN, Infinity, 1e31, -1e308]) {
    await expect(open.gateway.reward(caller, id, { reward })).rejects.toMatchObject({ code: 'usage' })
  }
  expect(await open.gateway.endSession(caller, id)).toEqual({ ...ended, reward: 0.5 })
  expect(open.store.reader.sessions.rewardsOf(id)).toMatchObject([
    { node: null, value: 0.5 },
    { node: 1, value: 1 },
  ])
  expect(open.store.reader.integrity()).toEqual([])
})

test('ending a session aborts its running request and records the partial reply', async () => {
  await using server = await ScriptedServer.start((response) => {
    beginEvents(response)
    response.write(tokenChunk('Hel', { token: 1 }))
  })
  await using open = await OpenGateway.open({ models: [{ name: 'm', backends: [{ url: server.url }] }] })
  const { id, caller } = await open.session()
  const { client, done } = open.send(caller, { ...body, stream: true })
  await client.received(1)
  const ended = await open.gateway.endSession(admin, id)
  await done
  await server.requests[0]?.closed
  expect(client.text).toContain('has ended')
  expect(client.text).not.toContain('[DONE]')
  expect(ended).toMatchObject({ state: 'ended', discarded: 1, interactions: 0, alarms: ['nothing_captured'] })
  const { id: interactionId } = client.events[0] as { id: string }
  await expect(open.gateway.reward(admin, id, { reward: 1, interactionId })).rejects.toMatchObject({
    data: { status: 404 },
    message: expect.stringContaining('was discarded (session_ended)') as string,
  })
  expect(open.store.reader.integrity()).toEqual([])
})

test('an idle session expires, a session in use does not', async () => {
  const answer = Promise.withResolvers<string>()
  await using open = await scripted(() => answer.promise)
  const idle = await open.session({ ttlSeconds: 0.02 })
  const used = await open.session({ ttlSeconds: 0.02 })
  const { client, done } = open.send(used.caller, body)
  await expect.poll(async () => (await open.gateway.session(admin, idle.id)).state).toBe('expired')
  expect((await open.gateway.session(admin, used.id)).state).toBe('open')
  answer.resolve('Hello')
  await done
  expect(client.status).toBe(200)
  await expect.poll(async () => (await open.gateway.session(admin, used.id)).state).toBe('expired')
  expect((await open.ask(idle.caller, body)).status).toBe(410)
})

test('a request to a session that is being ended by expiry gets the expiry error', async () => {
  await using open = await scripted()
  const { caller } = await open.session({ ttlSeconds: 0.02 })
  const told: string[] = []
  // A body that cannot be read uses nothing, so the session expires under it; its end takes a write to the disk.
  do {
    await setImmediate()
    const { status, text } = await open.ask(caller, '{')
    if (status === 410) told.push(text)
  } while (open.gateway.status().openSessions > 0)
  expect(told.length).toBeGreaterThan(0)
  for (const text of told) expect(text).toContain('expired, because it was not used')
})

test('a session that is unreadable when it expires is ended later', async () => {
  // Nothing is remembered, so that it is read to be ended.
  await using open = await scripted(() => 'Hello', { bounds: { maxRemembered: 0 } })
  const { sessions } = open.store.reader
  const read = sessions.bareNodesOf.bind(sessions)
  let failed = 0
  sessions.bareNodesOf = (id) => {
    failed += 1
    sessions.bareNodesOf = read
    throw new Error(`the disk does not give back ${id}`)
  }
  const { id, caller } = await open.session({ ttlSeconds: 1 })
  await open.ask(caller, body)
  await expect.poll(() => failed).toBe(1)
  await expect.poll(() => sessions.session(id)?.end?.why).toBe('expired')
})

test('a session with repeated retries counts as in use', async () => {
  await using open = await scripted(() => 'Hello')
  // Far longer than this machine ever stops for between two requests.
  const idle = await open.session({ ttlSeconds: 2 })
  const used = await open.session({ ttlSeconds: 2 })
  await open.ask(idle.caller, body)
  await open.ask(used.caller, body)
  await expect
    .poll(
      async () => {
        expect((await open.ask(used.caller, body, { retryCount: 1 })).status).toBe(200)
        return (await open.gateway.session(admin, idle.id)).state
      },
      { interval: 10 },
    )
    .toBe('expired')
  expect((await open.gateway.session(admin, used.id)).state).toBe('open')
})

test('an alarm is raised if a session ends without replies, and not if its replies are complete', async () => {
  const tokens = { ids: Int32Array.of(1), logprobs: Float32Array.of(-1), promptIds: Int32Array.of(2) }
  const reply = {
    message: { role: 'assistant', content: 'Hello' },
    finishReason: 'stop',
    usage: { calls: 1, input: 1, cachedInput: 0, output: 1, reasoning: 0 },
    tokens,
  } as const
  await using open = await scripted(() => reply)
  const events: GatewayEvent[] = []
  using _listening = gatewayEvents.subscribe((event) => events.push(event))
  const empty = await open.session()
  const full = await open.session()
  await open.ask(full.caller, body)
  for (const { id } of [empty, full]) await open.gateway.endSession(admin, id)
  const told = events.flatMap((event) => (event.kind === 'session-end' ? [[event.session, event.alarms]] : []))
  expect(told).toEqual([
    [empty.id, ['nothing_captured']],
    [full.id, []],
  ])
  expect(open.gateway.status().alarms).toBe(1)
  expect((await open.gateway.session(admin, empty.id)).alarms).toEqual(['nothing_captured'])
})

test('an event reports the outcome of every request', async () => {
  await using open = await scripted()
  const events: GatewayEvent[] = []
  using _listening = gatewayEvents.subscribe((event) => events.push(event))
  const { id, caller } = await open.session()
  await open.ask(caller, body)
  await open.ask(caller, 'no json')
  await open.ask(caller, { ...body, model: 'unknown' })
  await open.ask(admin, body)
  const told = events.filter((event) => event.kind === 'interaction-end')
  expect(told).toMatchObject([
    {
      outcome: 'complete',
      session: id,
      model: 'm',
      status: 200,
      tenant: 'acme',
      reply: { status: 'complete', tries: 1 },
    },
    { outcome: 'refused', session: id, status: 400, error: { code: 'model_rejected' } },
    { outcome: 'refused', session: id, status: 404, error: { code: 'model_not_found' } },
    { outcome: 'complete', model: 'm', status: 200 },
  ])
  expect(told[3]).not.toHaveProperty('session')
})

/** What was said up to the last node. */
function conversation(nodes: readonly MessageNode[]): string[] {
  const said: string[] = []
  for (let node = nodes.at(-1); node; node = node.parent === null ? undefined : nodes[node.parent]) {
    said.unshift(`${node.message.role}:${String(node.message.content)}`)
  }
  return said
}

test('of two equal replies, a request continues the one it names', async () => {
  await using open = await scripted(() => 'the same')
  const { id, caller } = await open.session()
  const ask = (request: object): ReturnType<typeof open.ask> =>
    open.ask(caller, { model: 'm', instructions: 'be brief', ...request }, { api: 'responses' })
  const replies = [await ask({ input: 'one' }), await ask({ input: 'one' })]
  for (const reply of replies) await ask({ input: 'two', previous_response_id: reply.document['id'] })
  const nodes = await open.nodes(id)
  const named = replies.map(({ document }) => nodes.find(({ call }) => call?.replyId === document['id'])?.seq)
  expect(nodes.filter(({ message }) => message.content === 'two').map(({ parent }) => parent)).toEqual(named)
})

test('a request continues a reply by its id, and an unknown id is a 404', async () => {
  await using open = await scripted(({ messages }) => `${messages.length} messages`)
  const { id, caller } = await open.session()
  const ask = (request: object): Promise<{ status: number | undefined; document: Record<string, unknown> }> =>
    open.ask(caller, { model: 'm', ...request }, { api: 'responses' })
  const first = await ask({ input: 'one', instructions: 'be brief' })
  const second = await ask({ input: 'two', instructions: 'be long', previous_response_id: first.document['id'] })
  expect(second.status).toBe(200)
  const nodes = await open.nodes(id)
  const said = nodes.map(({ message, parent }) => [message.role, message.content, parent])
  expect(said).toEqual([
    ['system', 'be brief', null],
    ['user', 'one', 0],
    ['assistant', '2 messages', 1],
    ['system', 'be long', null],
    ['user', 'one', 3],
    ['assistant', '2 messages', 4],
    ['user', 'two', 5],
    ['assistant', '4 messages', 6],
  ])
  // Instructions are for one reply: without any, or with empty ones, the next has none.
  const bare = ['user:one', 'assistant:2 messages', 'user:two', 'assistant:4 messages']
  for (const [index, instructions] of [undefined, ''].entries()) {
    const input = `three ${index}`
    const third = await ask({ input, previous_response_id: second.document['id'], instructions })
    expect(third.status).toBe(200)
    expect(conversation(await open.nodes(id))).toEqual([...bare, `user:${input}`, 'assistant:5 messages'])
  }
  const lost = await ask({ input: 'four', previous_response_id: 'resp_unknown' })
  expect(lost.status).toBe(404)
  const other = await open.session()
  const elsewhere = await open.ask(
    other.caller,
    { model: 'm', input: 'x', previous_response_id: first.document['id'] },
    { api: 'responses' },
  )
  expect(elsewhere.status).toBe(404)
  const outside = await open.ask(
    admin,
    { model: 'm', input: 'x', previous_response_id: first.document['id'] },
    { api: 'responses' },
  )
  expect(outside.status).toBe(404)
  expect(outside.text).toMatch(/needs a session.*POST \/v1\/sessions/)
})

test('models are found by name, by alias, and by the alias *', async () => {
  await using open = await scripted(undefined, { aliases: { 'gpt-4o': 'm', '*': 'm' } })
  expect(open.gateway.models()).toEqual([{ id: 'm' }, { id: 'gpt-4o' }])
  for (const model of ['m', 'gpt-4o', 'whatever']) {
    expect((await open.ask(admin, { ...body, model })).document['model']).toBe(model)
  }
  await expect(scripted(undefined, { aliases: { x: 'y' } })).rejects.toMatchObject({ code: 'config_invalid' })
})

test('a request for an alias is refused with the name of its model if no late backend has that model', async () => {
  const aliases = { agent: 'nobody', '*': 'nobody' }
  await using open = await scripted(() => 'Hello', { aliases, awaited: 1 })
  expect((await open.ask(admin, { ...body, model: 'agent' })).status).toBe(503)
  const models = [modelConfigSchema.parse({ name: 'm', backends: [{ url: 'http://scripted.invalid' }] })]
  open.gateway.offer({ models, awaited: 0 })
  for (const model of ['agent', 'constructor']) {
    const refused = await open.ask(admin, { ...body, model })
    expect(refused.status).toBe(404)
    expect(refused.document).toMatchObject({
      error: { message: expect.stringContaining(`"${model}" is an alias of "nobody"`) as string },
    })
  }
})

test('a draining gateway refuses new requests and lets running ones end', async () => {
  const answer = Promise.withResolvers<string>()
  await using open = await scripted(() => answer.promise)
  const { caller } = await open.session()
  const { client, done } = open.send(caller, body)
  const drained = open.gateway.drain()
  const refused = await open.ask(caller, body)
  expect(refused.status).toBe(503)
  expect(refused.headers['retry-after']).toBe('1')
  await expect(open.gateway.startSessions(admin, {})).rejects.toMatchObject({ code: 'closed' })
  expect(open.gateway.status()).toMatchObject({ state: 'draining', running: 1 })
  answer.resolve('Hello')
  await drained
  await done
  expect(client.status).toBe(200)
})

test('closing a gateway aborts running requests, answers them, and leaves nothing behind', async () => {
  const before = activeResources()
  {
    await using server = await ScriptedServer.start((response) => {
      beginEvents(response)
      response.write(tokenChunk('Hel', { token: 1 }))
    })
    await using open = await OpenGateway.open({ models: [{ name: 'm', backends: [{ url: server.url }] }] })
    const { caller } = await open.session()
    const streaming = open.send(caller, { ...body, stream: true })
    const waiting = open.send(admin, { ...body, stream: true })
    await Promise.all([streaming.client.received(1), waiting.client.received(1)])
    await open.gateway.close()
    await Promise.all([streaming.done, waiting.done])
    expect(streaming.client.isEnded).toBe(true)
    expect(streaming.client.text).not.toContain('[DONE]')
    const late = await open.ask(caller, body)
    expect(late.status).toBe(503)
  }
  expect(await leftSince(before)).toEqual([])
})

test('requests beyond the limits of the gateway are refused', async () => {
  await using open = await scripted(undefined, { bounds: { maxOpenSessions: 2, maxMessages: 3, maxRunning: 1 } })
  const { caller } = await open.session()
  await open.session()
  await expect(open.session()).rejects.toMatchObject({ code: 'overloaded' })
  const both = [open.send(caller, body), open.send(caller, body)]
  await Promise.all(both.map(({ done }) => done))
  expect(both.map(({ client }) => client.status)).toEqual([200, 503])
  const long = await open.ask(caller, { ...body, messages: [question, question, question] })
  expect(long.status).toBe(429)
  expect(long.text).toContain('maxMessages of 3')
})
