import { expect, test } from 'vitest'
import { ArealGateway, trajIn } from '../support/areal/areal-gateway.ts'
import { adminKey } from '../support/gateway/test-gateway.ts'

test('a group of sessions is started, with ids that begin with the task and keys of 43 characters', async () => {
  await using areal = await ArealGateway.start()
  const { status, body } = await areal.post('/rl/start_session', { task_id: '17', group_size: '3', more: 'ignored' })
  expect(status).toBe(201)
  expect(body).toEqual({ group_id: expect.any(String), sessions: expect.any(Array) })
  const sessions = body['sessions'] as { session_id: string; session_api_key: string }[]
  expect(sessions).toHaveLength(3)
  for (const { session_id: id, session_api_key: key } of sessions) {
    expect(id).toMatch(/^17-/)
    expect(key).toMatch(/^[\w-]{43}$/)
  }
  expect(new Set(sessions.map(({ session_id: id }) => id)).size).toBe(3)
})

test.each([
  [0, 1],
  [-2, 1],
  [true, 1],
  ['2', 2],
])('a group size of %j starts %i', async (size, count) => {
  await using areal = await ArealGateway.start()
  const { body } = await areal.post('/rl/start_session', { task_id: 't', group_size: size })
  expect(body['sessions']).toHaveLength(count)
})

test.each([
  ['a task that is no text', { task_id: 5 }, ['body', 'task_id']],
  ['no task', {}, ['body', 'task_id']],
  ['a group size that is no number', { task_id: 't', group_size: 'many' }, ['body', 'group_size']],
  ['no JSON', '{"task_id":', undefined],
])('%s is refused with 422 as FastAPI does', async (_, body, loc) => {
  await using areal = await ArealGateway.start()
  const reply = await areal.post('/rl/start_session', body)
  expect(reply.status).toBe(422)
  const [entry] = reply.body['detail'] as { type: string; loc: unknown }[]
  if (loc) expect(entry?.loc).toEqual(loc)
  else expect(entry?.type).toBe('json_invalid')
})

test('a key of the client is taken; in use it is refused, and with a ready trajectory it may be used again', async () => {
  await using areal = await ArealGateway.start()
  const start = () => areal.post('/rl/start_session', { task_id: 'mine', api_key: 'my-own-key' })
  const first = await start()
  const [given] = first.body['sessions'] as { session_id: string; session_api_key: string }[]
  expect(given?.session_api_key).toBe('my-own-key')
  const again = await start()
  expect(again.status).toBe(409)
  expect(again.body).toEqual({ detail: `API key is already bound to active session ${given?.session_id}.` })

  const before = { id: given?.session_id ?? '', key: 'my-own-key' }
  await areal.converse(before, 1)
  await areal.reward(before, 1)
  const second = await start()
  expect(second.status).toBe(201)
  // The key is of the new session, and the old one is exported by its id.
  expect((await areal.reward(before, 1)).body).toEqual({ detail: 'No interactions in session' })
  expect(Object.keys(trajIn(await areal.export([before])))).toHaveLength(6)
  // Its end does not take the key from the new session.
  expect((await areal.chat(before)).status).toBe(200)
})

test('of two requests with the same key at once, one gets it', async () => {
  await using areal = await ArealGateway.start()
  const replies = await Promise.all([1, 2].map(() => areal.post('/rl/start_session', { task_id: 't', api_key: 'one' })))
  expect(new Set(replies.map(({ status }) => status))).toEqual(new Set([201, 409]))
})

test('a reward ends a trajectory; it is repeated without another one, and the last value counts', async () => {
  await using areal = await ArealGateway.start()
  const session = await areal.startOne()
  await areal.converse(session, 3)
  const first = await areal.reward(session, 0.25)
  expect([first.status, first.body]).toEqual([
    200,
    {
      message: 'success',
      interaction_count: 3,
      session_id: session.id,
      trajectory_id: 0,
      trajectory_ready: true,
      ready_transition: true,
    },
  ])
  const second = await areal.reward(session, 0.5)
  expect(second.body).toMatchObject({ trajectory_id: 0, interaction_count: 3, ready_transition: false })
  await areal.chat(session)
  expect((await areal.reward(session, 1)).body).toMatchObject({
    trajectory_id: 1,
    interaction_count: 1,
    ready_transition: true,
  })
})

test('rewards for what is not there are refused as AReaL does', async () => {
  await using areal = await ArealGateway.start()
  const session = await areal.startOne()
  expect((await areal.reward(session, 1)).body).toEqual({ detail: 'No interactions in session' })
  await areal.converse(session, 1)
  const unknown = await areal.reward(session, 1, 'chatcmpl-none')
  expect([unknown.status, unknown.body]).toEqual([400, { detail: 'Interaction chatcmpl-none not found' }])
  expect((await areal.post('/rl/set_reward', '{"reward":NaN}', session.key)).status).toBe(422)
  expect((await areal.post('/rl/set_reward', { reward: 1 }, 'no such key')).body).toEqual({ error: 'Unknown API key' })
})

test('requests with an admin key share one session, which goes on after each export', async () => {
  await using areal = await ArealGateway.start()
  const online = { id: '__hitl__', key: adminKey }
  for (const trajectory of [0, 1]) {
    await areal.converse(online, 1)
    const { body } = await areal.reward(online, trajectory)
    expect(body).toMatchObject({ trajectory_id: trajectory, interaction_count: 1, ready_transition: true })
    expect(body['session_id']).toMatch(/^__hitl__-/)
    const id = String(body['session_id'])
    expect(Object.keys(trajIn(await areal.export([{ id, key: '' }], { trajectory_id: trajectory })))).toHaveLength(6)
    expect(trajIn(await areal.export([online], { trajectory_id: trajectory }))).toEqual({})
  }
})

test('sessions, their rewards and their trajectories survive a restart', async () => {
  await using areal = await ArealGateway.start()
  const session = await areal.startOne()
  await areal.converse(session, 2)
  await areal.reward(session, 0.5)
  await areal.gateway.server.close()
  await using again = await ArealGateway.start([{}], { run: { root: areal.gateway.root, name: 'gateway' } })
  expect((await again.reward(session, 0.75)).body).toMatchObject({ trajectory_id: 0, ready_transition: false })
  expect((await again.chat(session)).status).toBe(200)
  expect(trajIn(await again.export([session]))['rewards']?.shape).toEqual([2])
})

test('models are listed by name, and a name that is announced stands for the first model', async () => {
  await using areal = await ArealGateway.start()
  const announced = await areal.post('/register_model', { model: 'actor', url: '', data_proxy_addrs: [] })
  expect(announced.body).toEqual({ status: 'ok', model: 'actor', data_proxy_addrs: [areal.gateway.url] })
  expect((await areal.gateway.ask('/models')).body).toEqual({ models: ['policy', 'actor'] })
  // OpenAI's clients find their list, and AReaL's the names.
  const { body } = await areal.gateway.ask('/v1/models')
  expect(body).toMatchObject({ object: 'list', data: [{ id: 'policy' }], models: ['policy', 'actor'] })
  expect((await areal.post('/register_model', {})).body).toEqual({ error: 'model is required' })
  expect((await areal.post('/register_model', { model: 'm', url: 'http://elsewhere' })).status).toBe(501)
})

test('a key of the gateway itself keeps its own errors', async () => {
  await using areal = await ArealGateway.start()
  const { key } = await areal.gateway.startSession()
  const native = await areal.post('/v1/chat/completions', '{', key)
  expect([native.status, native.body]).toMatchObject([400, { error: { type: 'invalid_request_error' } }])
  const session = await areal.startOne()
  const theirs = await areal.post('/v1/chat/completions', '{', session.key)
  expect([theirs.status, theirs.body]).toEqual([400, { detail: 'Invalid JSON body' }])
})
