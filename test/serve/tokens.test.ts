import { defineEnvironment, z } from 'millrace'
import { temporaryRuns, type Script } from 'millrace/testing'
import { expect, test } from 'vitest'
import { readBinaryRows, type ReadRow } from '../support/gateway/read-rows.ts'
import { TestServer } from '../support/serve/test-server.ts'

const count = 40_000
const ids = Int32Array.from({ length: count }, (_, index) => (index * 7919) % 151_936)
const logprobs = Float32Array.from({ length: count }, (_, index) => -(1 + (index % 997)) / 991)
logprobs[3] = Number.NEGATIVE_INFINITY
const promptIds = Int32Array.of(1, 2, 3)
const experts = Uint8Array.from({ length: count * 4 }, (_, index) => index % 128)
const routedExperts = { shape: [count, 2, 2], experts }

/** Longer than what is sent in one piece, and than what the front writes itself. */
const content = 'wörd '.repeat(count)

const script: Script = () => ({
  message: { role: 'assistant', content },
  finishReason: 'stop',
  usage: { calls: 1, input: 3, cachedInput: 0, output: count, reasoning: 0 },
  tokens: { promptIds, ids, logprobs, version: 'v7', routedExperts },
})

interface Sent {
  readonly id: string
  readonly messages: readonly { readonly content: string }[]
  readonly nodes?: readonly { readonly sampled: boolean; readonly tokens?: Record<string, unknown> }[]
}

test('tokens are exactly those of the backend: in the reply, later, and after a restart', async () => {
  await using runs = await temporaryRuns()
  const options = { captureTokens: true, run: { root: runs.root, name: 'served' } }
  let posted: string
  {
    await using server = await TestServer.start(script, options)
    const { body } = await server.open({ task: { word: 'wörd' }, include: 'tokens' })
    posted = await body.text()
    expect(await server.text('/v1/rollouts/0-0?include=tokens')).toBe(posted)
  }
  const sent = JSON.parse(posted) as Sent
  expect(sent.messages.at(-1)?.content).toBe(content)
  expect(sent.nodes?.map(({ sampled }) => sampled)).toEqual([false, true])
  const tokens = sent.nodes?.[1]?.tokens as Record<string, unknown>
  expect(tokens['ids']).toEqual([...ids])
  expect(tokens['promptIds']).toEqual([1, 2, 3])
  expect(tokens['version']).toBe('v7')
  const sentLogprobs = tokens['logprobs'] as (number | null)[]
  expect(sentLogprobs[3], 'JSON has no infinity').toBeNull()
  expect(Float32Array.from(sentLogprobs, (value) => value ?? Number.NEGATIVE_INFINITY)).toEqual(logprobs)
  const { shape, dtype, data } = tokens['routedExperts'] as { shape: number[]; dtype: string; data: string }
  expect({ shape, dtype }).toEqual({ shape: [count, 2, 2], dtype: 'uint8' })
  expect(new Uint8Array(Buffer.from(data, 'base64'))).toEqual(experts)

  await using server = await TestServer.start(script, options)
  expect(await server.text('/v1/rollouts/0-0?include=tokens')).toBe(posted)
})

test('the tokens of a child are returned with those of its rollout', async () => {
  const environment = defineEnvironment({
    name: 'asking',
    task: z.object({}),
    tasks: () => [],
    prompt: () => 'Go.',
    update: async ({ child }) => void (await child({ prompt: 'Help.' })),
    reward: () => 1,
  })
  const short: Script = ({ messages }) => ({
    message: { role: 'assistant', content: 'done' },
    finishReason: 'stop',
    usage: { calls: 1, input: 3, cachedInput: 0, output: 1, reasoning: 0 },
    tokens: { ids: Int32Array.of(messages[0]?.content === 'Help.' ? 8 : 7), logprobs: Float32Array.of(-1) },
  })
  await using server = await TestServer.start(short, { environment, captureTokens: true })
  const { body } = await server.post({ task: {}, include: 'tokens' })
  const sampled = (token: number) => [{ sampled: false }, { sampled: true, tokens: { ids: [token], logprobs: [-1] } }]
  expect(body).toMatchObject({ nodes: sampled(7), childRollouts: [{ parent: '0-0', nodes: sampled(8) }] })
})

test('tokens can be returned in base64', async () => {
  await using server = await TestServer.start(script, { captureTokens: true })
  const { body } = await server.post({ task: { word: 'wörd' }, include: 'tokens-base64' })
  const tokens = (body as unknown as Sent).nodes?.[1]?.tokens as Record<string, { dtype: string; data: string }>
  const bytesOf = (name: string): ArrayBuffer => new Uint8Array(Buffer.from(tokens[name]?.data ?? '', 'base64')).buffer
  expect(tokens['ids']?.dtype).toBe('int32')
  expect(new Int32Array(bytesOf('ids'))).toEqual(ids)
  expect(tokens['logprobs']?.dtype).toBe('float32')
  expect(new Float32Array(bytesOf('logprobs'))).toEqual(logprobs)
})

test('tokens are not returned unless requested, however long the text is', async () => {
  await using server = await TestServer.start(script, { captureTokens: true })
  const lines = await server.lines({ tasks: [{ word: 'wörd' }, { word: 'x' }] })
  for (const line of lines) {
    expect(line).not.toHaveProperty('nodes')
    expect((line as unknown as Sent).messages.at(-1)?.content).toBe(content)
  }
  expect(lines).toHaveLength(2)
})

test('a client that does not read delays no other client, and gets everything once it reads', async () => {
  await using server = await TestServer.start(script, { captureTokens: true })
  const tasks = Array.from({ length: 40 }, (_, index) => ({ word: String(index) }))
  const { body } = await server.open({ tasks, include: 'tokens', requestId: 'slow' })
  // Some forty megabytes: far more than sockets and streams hold by themselves.
  await expect.poll(() => server.service.status().outcomes.completed).toBe(40)
  expect((await server.post({ task: { word: 'other' } })).status).toBe(200)
  const lines = (await body.text()).trimEnd().split('\n')
  expect(new Set(lines.map((line) => (JSON.parse(line) as Sent).id)).size).toBe(40)
})

test('rows are refused before anything runs, if the server records no tokens', async () => {
  await using server = await TestServer.start(script)
  const refused = await server.post({ task: { word: 'wörd' }, include: 'rows' })
  expect(refused).toMatchObject({ status: 400, body: { error: { code: 'usage' } } })
  expect(JSON.stringify(refused.body)).toContain('--tokens')
  expect(server.service.status().outcomes).toEqual({})
  const alone = await server.post({ task: { word: 'wörd' }, advantage: 'grpo' })
  expect(alone).toMatchObject({ status: 400 })
})

test('the rows of a request are streamed by groups, and can be read again', async () => {
  await using server = await TestServer.start(script, { captureTokens: true })
  const tasks = ['wörd', 'other', 'third'].map((word) => ({ word }))
  const { body } = await server.open({ tasks, attempts: 2, include: 'rows', advantage: 'rloo', requestId: 'step' })
  const rows = readBinaryRows(await body.bytes())
  const kinds = rows.map(({ kind }) => kind)
  expect(kinds).toEqual([...tasks.flatMap(() => ['merged', 'merged', 'group']), 'end'])
  for (const row of rows.filter(({ kind }) => kind === 'merged')) {
    expect(row['ids']).toEqual(Int32Array.of(...promptIds, ...ids))
    expect(row).toMatchObject({
      outcome: 'completed',
      advantage: 0,
      versions: [{ count: 3 }, { version: 'v7', count }],
    })
    // The log-probability that is not finite is not trained.
    const untrained = promptIds.length + logprobs.indexOf(Number.NEGATIVE_INFINITY)
    expect((row['mask'] as Uint8Array).indexOf(0, promptIds.length)).toBe(untrained)
    expect((row['mask'] as Uint8Array).indexOf(0, untrained + 1)).toBe(-1)
  }
  const again = await server.bytes('/v1/requests/step?include=rows&advantage=rloo')
  const byTask = (group: readonly ReadRow[]): unknown[] => group.map((row) => ({ ...row })).toSorted(inOrder)
  expect(byTask(readBinaryRows(again))).toEqual(byTask(rows))
  const interactions = readBinaryRows(await server.bytes('/v1/requests/step?include=interactions'))
  const replies = interactions.filter(({ kind }) => kind === 'interaction')
  expect(replies.map((row) => [row['promptIds'], row['ids']])).toEqual(replies.map(() => [promptIds, ids]))
  expect(replies).toHaveLength(6)
})

function inOrder(one: ReadRow, other: ReadRow): number {
  const name = ({ kind, session, group }: ReadRow): string => `${String(group)} ${String(session)} ${kind}`
  return name(one).localeCompare(name(other))
}

test('if the rows of a group cannot be made, the last row says why', async () => {
  await using server = await TestServer.start(script, { captureTokens: true })
  await server.service.codec.close()
  const { body } = await server.open({ task: { word: 'wörd' }, include: 'rows', requestId: 'step' })
  expect(readBinaryRows(await body.bytes())).toMatchObject([{ kind: 'error', error: { code: 'closed' } }])
})
