import { join } from 'node:path'
import { defineEnvironment, replayRun, rescoreRun, z } from 'millrace'
import { temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { RunReader } from '../../src/store/index.ts'
import { echo, HeldAnswers, type RecordLine, TestServer, wordEnvironment } from '../support/serve/test-server.ts'

const messages = [
  { role: 'system', content: 'Be brief.' },
  { role: 'user', content: 'a pear' },
] as const

/** Fails where it must not be asked. */
const silent = defineEnvironment({
  ...wordEnvironment,
  prompt: () => {
    throw new Error('nobody asked for a prompt')
  },
  reward: () => {
    throw new Error('nobody asked for a reward')
  },
})

test('messages of a request take the place of the prompt, and without a score no reward runs', async () => {
  await using server = await TestServer.start(echo, { environment: silent })
  const { body } = await server.post({ task: { word: 'a' }, messages, scored: false })
  expect(body).toMatchObject({ outcome: 'completed', reward: null, rewards: {}, unscored: true })
  expect(body['messages']).toEqual([...messages, { role: 'assistant', content: 'you said a pear' }])
  const scored = await server.post({ task: { word: 'a' }, messages, scored: true })
  expect(scored.body).toMatchObject({ outcome: 'reward_error', reward: null })
})

test('messages and a missing score survive a restart', async () => {
  await using runs = await temporaryRuns()
  const run = { root: runs.root, name: 'served' }
  const answers = new HeldAnswers()
  {
    await using server = await TestServer.start(answers.script, { run, environment: silent, concurrency: 1 })
    await server.post({
      requestId: 'opened',
      tasks: [{ word: 'a' }, { word: 'b' }],
      messages,
      scored: false,
      detached: true,
    })
    await expect.poll(() => answers.asked.has('a pear')).toBe(true)
  }
  await using server = await TestServer.start(echo, { run, environment: silent })
  const records = await server.lines({
    requestId: 'opened',
    tasks: [{ word: 'a' }, { word: 'b' }],
    messages,
    scored: false,
  })
  expect(records.map(({ answer, reward, unscored }) => [answer, reward, unscored])).toEqual([
    ['you said a pear', null, true],
    ['you said a pear', null, true],
  ])
})

test.each([
  ['other messages', { messages: [{ role: 'user', content: 'a plum' }] }],
  ['no messages', { messages: undefined }],
  ['a score', { scored: true }],
])('the same request id with %s is refused', async (_what, change) => {
  await using server = await TestServer.start(echo)
  const request = { requestId: 'again', task: { word: 'a' }, messages, scored: false }
  await server.post(request)
  expect((await server.post(request)).status).toBe(200)
  expect(server.backend.requests).toHaveLength(1)
  const { status, body } = await server.post({ ...request, ...change })
  expect(status).toBe(409)
  expect(body).toMatchObject({ error: { code: 'run_mismatch' } })
})

test('a body that is read on a thread has its messages, too', async () => {
  await using server = await TestServer.start(echo)
  const content = 'p'.repeat(200_000)
  const { body } = await server.post({ task: { word: 'a' }, messages: [{ role: 'user', content }] })
  expect(body['answer']).toBe(`you said ${content}`)
})

test.each([
  ['none', [], /messages: must not be empty/],
  ['what is no message', [{ role: 'user' }], /messages\[0\]/],
  ['more than a task may have', [{ role: 'user', content: 'p'.repeat(1024 * 1024) }], /messages has \d+ bytes/],
])('messages that are %s are refused', async (_what, wrong, why) => {
  await using server = await TestServer.start(echo)
  const { status, body } = await server.post({ task: { word: 'a' }, messages: wrong })
  expect(status).toBe(400)
  expect(body).toMatchObject({ error: { code: 'usage', message: expect.stringMatching(why) } })
})

test('a rollout with messages of its request is replayed with them, and is never scored again', async () => {
  await using runs = await temporaryRuns()
  const run = { root: runs.root, name: 'served' }
  {
    await using server = await TestServer.start(echo, { run })
    await server.post({ task: { word: 'a' }, messages, scored: false })
    await server.post({ task: { word: 'pear' }, messages })
  }
  using reader = RunReader.open(join(runs.root, 'served'))
  const replays = await Array.fromAsync(replayRun(reader, { environment: wordEnvironment }))
  expect(replays.map(({ rollout, verdict }) => [rollout, verdict])).toEqual([
    ['0-0', 'identical'],
    ['1-0', 'identical'],
  ])
  const rescoring = await rescoreRun(reader, { environment: { ...wordEnvironment, reward: () => 0.5 } })
  const lines = await Array.fromAsync(rescoring)
  expect(lines.map(({ id, before, after }) => [id, before, after])).toEqual([
    ['0-0', null, null],
    ['1-0', 1, 0.5],
  ])
})

test('a rollout without a score does not wait for a group', async () => {
  const environment = defineEnvironment({
    name: 'ranked',
    task: z.object({ word: z.string() }),
    tasks: () => [],
    prompt: ({ task }) => task.word,
    reward: { rank: { group: ({ members }) => members.map((_, index) => index) } },
  })
  await using server = await TestServer.start(echo, { environment, attempts: 4 })
  const { body } = await server.post({ task: { word: 'a' }, attempts: 1, scored: false })
  expect(body as RecordLine).toMatchObject({ id: '0-0', outcome: 'completed', reward: null, unscored: true })
})
