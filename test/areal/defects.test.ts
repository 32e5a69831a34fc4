import { setTimeout as wait } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { gatewayDefaults } from '../../src/serve/gateway/backend-models.ts'
import { ArealGateway, question, rowsIn, trajIn } from '../support/areal/areal-gateway.ts'
import { TestGateway } from '../support/gateway/test-gateway.ts'
import { chatChunk, chatReply, ScriptedServer, sendJson } from '../support/inference/scripted-server.ts'

/** What AReaL 1.0.4 gets wrong, each by the name that docs/areal.md has for it. */

test('sessions pinned to one worker: sessions of one admin key are spread over all backends', async () => {
  await using areal = await ArealGateway.start([{ recordEmitted: 100 }, { recordEmitted: 100 }])
  const sessions = await areal.startGroup(20)
  await Promise.all(sessions.map((session) => areal.converse(session, 2)))
  const seen = areal.backends.map(({ simulator }) => {
    const names = simulator.emitted().replies.map(({ session }) => session)
    return new Set(names.filter((name) => name.startsWith('ses_')))
  })
  for (const names of seen) expect(names.size).toBeGreaterThanOrEqual(8)
  // Each session stays where its prefix is.
  expect(seen.reduce((sum, { size }) => sum + size, 0)).toBe(20)
})

test('replayed generations: the retry of a client gets the reply that was sampled before', async () => {
  await using areal = await ArealGateway.start([{ recordEmitted: 10 }])
  const session = await areal.startOne()
  const { body } = await areal.chat(session)
  const retry = await areal.gateway.ask('/chat/completions', {
    key: session.key,
    body: { model: 'default', messages: question },
    headers: { 'x-stainless-retry-count': '1' },
  })
  expect(retry.body['id']).toBe(body['id'])
  const sampled = areal.backends[0]?.simulator.emitted().replies.filter(({ session: name }) => name !== '')
  expect(sampled).toHaveLength(1)
  await areal.reward(session, 1)
  expect(trajIn(await areal.export([session]))['rewards']?.shape).toEqual([1])
})

test('data consumed by a failed export: an export that is refused changes nothing', async () => {
  await using areal = await ArealGateway.start([{}], { bounds: { maxTensorBytes: 4_000 } })
  const sessions = await areal.startGroup(2)
  for (const session of sessions) {
    await areal.converse(session, 1)
    await areal.reward(session, 1)
  }
  const unknownStyle = await areal.export(sessions, { style: 'other' })
  expect(unknownStyle.status).toBe(500)
  const [first] = sessions
  const long = [{ role: 'user', content: 'word '.repeat(500) }]
  await areal.chat(first ?? { id: '', key: '' }, long)
  await areal.reward(first ?? { key: '' }, 1)
  expect((await areal.export(sessions)).status).toBe(413)
  for (const session of sessions) {
    expect(trajIn(await areal.export([session], { trajectory_id: 0 }))['rewards']?.shape).toEqual([1])
  }
})

test('data consumed by a failed export: a client that leaves before it has the reply may ask again', async () => {
  await using areal = await ArealGateway.start()
  const session = await areal.startOne()
  const long = [{ role: 'user', content: 'word '.repeat(40_000) }]
  await Promise.all(Array.from({ length: 20 }, async (_, seed) => await areal.chat(session, long, { seed })))
  await areal.reward(session, 1)
  // More than the sockets of both sides hold.
  const body = { session_ids: [session.id], remove_session: true }
  const { body: content } = await areal.gateway.open('/export_trajectories', { body })
  await content[Symbol.asyncIterator]().next()
  content.destroy()
  await wait(200)
  expect(trajIn(await areal.export([session]))['rewards']?.shape).toEqual([20])
  expect((await areal.export([session])).body).toEqual({ traj: {} })
})

test('100 connections: 300 chats at once are at the backend at once', async () => {
  const all = Promise.withResolvers<void>()
  await using backend = await ScriptedServer.start(async (response) => {
    await all.promise
    sendJson(response, chatReply('hello'))
  })
  await using gateway = await TestGateway.start({
    areal: {},
    models: [{ name: 'm', ...gatewayDefaults, backends: [{ url: backend.url }] }],
  })
  const { body } = await gateway.ask('/rl/start_session', { body: { task_id: 't', group_size: 300 } })
  const sessions = body['sessions'] as { session_api_key: string }[]
  const chats = sessions.map(({ session_api_key: key }) =>
    gateway.ask('/chat/completions', { key, body: { messages: question } }),
  )
  await backend.received(300)
  all.resolve()
  expect(new Set((await Promise.all(chats)).map(({ status }) => status))).toEqual(new Set([200]))
})

test('simulated streams: a client has a chunk before the model has written the next', async () => {
  const next = Promise.withResolvers<void>()
  await using backend = await ScriptedServer.start(async (response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    response.write(chatChunk({ role: 'assistant', content: 'one' }))
    await next.promise
    response.end(`${chatChunk({ content: ' two' })}${chatChunk({}, 'stop')}data: [DONE]\n\n`)
  })
  await using gateway = await TestGateway.start({
    areal: {},
    models: [{ name: 'm', backends: [{ url: backend.url }] }],
  })
  const { body } = await gateway.ask('/rl/start_session', { body: { task_id: 't' } })
  const [session] = body['sessions'] as { session_api_key: string }[]
  const key = session?.session_api_key ?? ''
  const reply = await gateway.open('/chat/completions', { key, body: { messages: question, stream: true } })
  expect(reply.headers['content-type']).toMatch(/^text\/event-stream/)
  let text = ''
  for await (const chunk of reply.body) {
    text += String(chunk)
    if (text.includes('"one"')) next.resolve()
  }
  // AReaL's controller wants one document per line, each after `data: `.
  const lines = text.split('\n').filter((line) => line !== '')
  expect(lines.every((line) => line.startsWith('data: '))).toBe(true)
  expect(lines.at(-1)).toBe('data: [DONE]')
})

test('abandoned generations recorded: a call whose client has left is aborted, and not exported', async () => {
  let isAborted = Promise.withResolvers<void>()
  await using backend = await ScriptedServer.start(async (response, { body, closed }) => {
    if (!body.includes('leave')) {
      sendJson(response, chatReply('here'))
      return
    }
    await closed
    isAborted.resolve()
  })
  await using gateway = await TestGateway.start({
    areal: {},
    models: [{ name: 'm', backends: [{ url: backend.url }] }],
  })
  const started = await gateway.ask('/rl/start_session', { body: { task_id: 't' } })
  const [session] = started.body['sessions'] as { session_id: string; session_api_key: string }[]
  const key = session?.session_api_key ?? ''
  for (const stream of [false, true]) {
    isAborted = Promise.withResolvers<void>()
    const leaving = new AbortController()
    const gone = fetch(`${gateway.url}/chat/completions`, {
      method: 'POST',
      signal: leaving.signal,
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: JSON.stringify({ stream, messages: [{ role: 'user', content: `leave ${stream}` }] }),
    }).catch(() => undefined)
    await backend.received(stream ? 2 : 1)
    leaving.abort()
    await gone
    await isAborted.promise
  }
  await gateway.ask('/chat/completions', { key, body: { messages: question } })
  await gateway.ask('/rl/set_reward', { key, body: { reward: 1 } })
  const { body } = await gateway.ask('/export_trajectories', { body: { session_ids: [session?.session_id] } })
  expect(body).toMatchObject({ traj: { interactions: [{ response: 'here', reward: 1 }] } })
  expect((body['traj'] as { interactions: [] }).interactions).toHaveLength(1)
})

test('rewards lost to a failed call: the reward goes to the last complete call', async () => {
  let count = 0
  await using backend = await ScriptedServer.start((response) => {
    count += 1
    if (count === 1) sendJson(response, chatReply('the only one', { id: 'chatcmpl-first' }))
    else sendJson(response, { error: { message: 'out of memory' } }, 500)
  })
  const models = [{ name: 'm', maxTries: 1, backends: [{ url: backend.url }] }]
  await using gateway = await TestGateway.start({ areal: {}, models })
  const started = await gateway.ask('/rl/start_session', { body: { task_id: 't' } })
  const [session] = started.body['sessions'] as { session_id: string; session_api_key: string }[]
  const key = session?.session_api_key ?? ''
  await gateway.ask('/chat/completions', { key, body: { messages: question } })
  const failed = await gateway.ask('/chat/completions', { key, body: { messages: [...question, ...question] } })
  expect(failed.status).toBe(500)
  expect(failed.body).toEqual({ detail: expect.any(String) })
  const rewarded = await gateway.ask('/rl/set_reward', { key, body: { interaction_id: null, reward: 0.75 } })
  expect(rewarded.body).toMatchObject({ interaction_count: 1, ready_transition: true })
  const { body } = await gateway.ask('/export_trajectories', { body: { session_ids: [session?.session_id] } })
  expect(body).toMatchObject({ traj: { interactions: [{ response: 'the only one', reward: 0.75 }] } })
})

test('open control plane: every route but the probes needs a key, and a session’s key opens only what is its own', async () => {
  await using areal = await ArealGateway.start([{}], { areal: { tensors: 'reference' } })
  const session = await areal.startOne()
  const probes = new Set(['/health', '/ready', '/'])
  const ofSession = new Set(['/chat/completions', '/rl/set_reward'])
  const theirs = /^\/(?:rl|data|models|register_model|export_trajectories|chat)\b/
  for (const route of areal.gateway.server.routes) {
    const [method = '', path = ''] = route.split(' ')
    if (probes.has(path)) continue
    const ask = async (key: string | null) =>
      await areal.gateway.ask(path.replace('{shard}', 'x').replace('{id}', 'x').replace('*', 'x'), {
        method: method as 'GET',
        key,
        ...(method === 'POST' && { body: {} }),
      })
    expect((await ask(null)).status, route).toBe(401)
    expect([401, 403], route).toContain((await ask('a wrong key')).status)
    // Nor may an agent reward itself in a session that is not AReaL's.
    if (path === '/rl/set_reward') {
      const { key } = await areal.gateway.startSession()
      await areal.post('/chat/completions', { messages: question }, key)
      expect((await areal.reward({ key }, 1)).status).toBe(403)
    }
    if (theirs.test(path) && !ofSession.has(path)) expect((await ask(session.key)).status, route).toBe(403)
  }
})

test('agents that send back what they got continue the same conversation', async () => {
  await using areal = await ArealGateway.start()
  const session = await areal.startOne()
  const { body } = await areal.chat(session)
  const [choice] = body['choices'] as { message: object }[]
  // As the client of OpenAI dumps a message: with all fields, nulls too.
  const dumped = {
    refusal: null,
    annotations: null,
    audio: null,
    function_call: null,
    tool_calls: null,
    ...choice?.message,
  }
  await areal.chat(session, [...question, dumped, { role: 'user', content: 'And 2 + 2?' }])
  await areal.reward(session, 1)
  const traj = trajIn(await areal.export([session], { style: 'concat' }))
  expect(rowsIn(traj['rewards'])).toEqual([[1]])
})
