import { expect, test } from 'vitest'
import { ArealGateway, question, rowsIn, trajIn } from '../support/areal/areal-gateway.ts'
import { readJsonRows } from '../support/gateway/read-rows.ts'
import { chatReply, ScriptedServer, sendJson } from '../support/inference/scripted-server.ts'
import { TestGateway } from '../support/gateway/test-gateway.ts'

interface InteractionRow {
  readonly kind: string
  readonly promptIds: number[]
  readonly ids: number[]
  readonly logprobs: number[]
}

test('an export has six tensors of all calls, equal to the rows of the gateway itself', async () => {
  await using areal = await ArealGateway.start([{ imitate: 'sglang', weightVersion: '7' }])
  const sessions = await areal.startGroup(2)
  for (const [index, session] of sessions.entries()) {
    await areal.converse(session, index + 2)
    await areal.reward(session, index + 0.5)
  }
  const { text } = await areal.gateway.ask('/v1/export')
  const rows = (readJsonRows(Buffer.from(text)) as unknown as InteractionRow[]).filter(
    ({ kind }) => kind === 'interaction',
  )
  const traj = trajIn(await areal.export(sessions))
  expect(Object.keys(traj)).toEqual(['input_ids', 'loss_mask', 'logprobs', 'versions', 'attention_mask', 'rewards'])
  const width = Math.max(...rows.map(({ promptIds, ids }) => promptIds.length + ids.length))
  expect(rows).toHaveLength(5)
  for (const name of ['input_ids', 'loss_mask', 'logprobs', 'versions', 'attention_mask']) {
    expect(traj[name]?.shape).toEqual([5, width])
  }
  const padded = (numbers: readonly number[]): number[] => [...numbers, ...Array(width - numbers.length).fill(0)]
  for (const [index, { promptIds, ids, logprobs }] of rows.entries()) {
    const prompt = promptIds.length
    expect(rowsIn(traj['input_ids'])[index]).toEqual(padded([...promptIds, ...ids]))
    expect(rowsIn(traj['loss_mask'])[index]).toEqual(padded([...Array(prompt).fill(0), ...ids.map(() => 1)]))
    expect(rowsIn(traj['versions'])[index]).toEqual(padded([...Array(prompt).fill(-1), ...ids.map(() => 7)]))
    expect(rowsIn(traj['attention_mask'])[index]).toEqual(padded(Array(prompt + ids.length).fill(1)))
    const expected = padded([...Array(prompt).fill(0), ...logprobs.map(Math.fround)])
    expect(rowsIn(traj['logprobs'])[index]).toEqual(expected)
  }
  expect(rowsIn(traj['rewards'])).toEqual([[0.5, 0.5, 1.5, 1.5, 1.5]])
  expect(['torch.int64', 'torch.float32', 'torch.bool']).toEqual(
    ['versions', 'logprobs', 'attention_mask'].map((name) => traj[name]?.dtype),
  )
})

test('each call gets the discounted rewards of those after it, its own included', async () => {
  await using areal = await ArealGateway.start()
  const session = await areal.startOne()
  const { body } = await areal.chat(session)
  // Another conversation of the same agent: AReaL's rule knows no conversations.
  await areal.chat(session, [{ role: 'user', content: 'Something else' }])
  await areal.chat(session, [{ role: 'user', content: 'The last one' }])
  await areal.reward(session, 1)
  await areal.reward(session, 8, String(body['id']))
  const rewards = async (discount: number) =>
    rowsIn(trajIn(await areal.export([session], { discount, remove_session: false }))['rewards'])
  expect(await rewards(0.5)).toEqual([[8.25, 0.5, 1]])
  expect(await rewards(0)).toEqual([[8, 0, 1]])
})

test('style concat has one sequence for a conversation, in which each token is sampled once', async () => {
  await using areal = await ArealGateway.start()
  const session = await areal.startOne()
  await areal.converse(session, 3)
  // A fork of the conversation.
  await areal.chat(session, [...question, { role: 'user', content: 'Another way' }])
  await areal.reward(session, 1)
  const single = trajIn(await areal.export([session], { remove_session: false }))
  const joined = trajIn(await areal.export([session], { style: 'concat' }))
  const sampled = (mask: readonly number[][]): number => mask.flat().reduce((sum, each) => sum + each, 0)
  expect(single['input_ids']?.shape[0]).toBe(4)
  expect(joined['input_ids']?.shape[0]).toBe(2)
  expect(sampled(rowsIn(joined['loss_mask']))).toBe(sampled(rowsIn(single['loss_mask'])))
  // The tokens of the last turn of the conversation, with the mask of every turn.
  expect(rowsIn(joined['input_ids'])[0]).toEqual(rowsIn(single['input_ids'])[2])
})

test('calls of a model without tokens are exported as text', async () => {
  await using backend = await ScriptedServer.start((response) => sendJson(response, chatReply('forty-two')))
  const models = [{ name: 'm', backends: [{ url: backend.url }] }]
  await using gateway = await TestGateway.start({ areal: {}, models })
  const started = await gateway.ask('/rl/start_session', { body: { task_id: 't' } })
  const [session] = started.body['sessions'] as { session_id: string; session_api_key: string }[]
  const key = session?.session_api_key ?? ''
  await gateway.ask('/chat/completions', { key, body: { messages: question } })
  await gateway.ask('/rl/set_reward', { key, body: { reward: 1 } })
  const { body } = await gateway.ask('/export_trajectories', { body: { session_ids: [session?.session_id] } })
  expect(body).toEqual({ traj: { interactions: [{ request: question, response: 'forty-two', reward: 1 }] } })
})

test('what there is nothing of is empty, and a removed session is, too', async () => {
  await using areal = await ArealGateway.start()
  const session = await areal.startOne()
  expect((await areal.export([{ id: 'unknown-0', key: '' }])).body).toEqual({ traj: {} })
  expect((await areal.export([session], { remove_session: false })).body).toEqual({ traj: {} })
  await areal.converse(session, 1)
  await areal.reward(session, 1)
  const first = await areal.export([session], { remove_session: false })
  expect((await areal.export([session])).text).toBe(first.text)
  expect((await areal.export([session])).body).toEqual({ traj: {} })
  const chat = await areal.chat(session)
  expect([chat.status, chat.body]).toEqual([401, { error: 'Unknown API key' }])
  expect((await areal.reward(session, 1)).status).toBe(401)
})

test('an export that names no session is refused as AReaL does', async () => {
  await using areal = await ArealGateway.start()
  for (const body of [{}, { session_ids: [] }]) {
    const reply = await areal.post('/export_trajectories', body)
    expect([reply.status, reply.body]).toEqual([400, { error: 'session_ids is required' }])
  }
  expect((await areal.post('/export_trajectories', '{')).body).toEqual({ error: 'Invalid JSON body' })
  const odd = await areal.post('/export_trajectories', { session_ids: 'one' })
  expect([odd.status, odd.body]).toMatchObject([422, { detail: [{ loc: ['body', 'session_ids'] }] }])
})

test('a long export is streamed, and is the same', async () => {
  await using areal = await ArealGateway.start()
  const session = await areal.startOne()
  const long = [{ role: 'user', content: 'word '.repeat(12_000) }]
  await Promise.all([1, 2, 3, 4].map((seed) => areal.chat(session, long, { seed })))
  await areal.reward(session, 1)
  const reply = await areal.export([session])
  expect(reply.text.length).toBeGreaterThan(1024 * 1024)
  expect(reply.headers['transfer-encoding']).toBe('chunked')
  const traj = trajIn(reply)
  const [rows = 0, width = 0] = traj['input_ids']?.shape ?? []
  expect(rowsIn(traj['attention_mask']).flat()).toHaveLength(rows * width)
})
