import { defineEnvironment, MillraceError, z } from 'millrace'
import { temporaryRuns, type Script } from 'millrace/testing'
import { expect, test } from 'vitest'
import { HeldAnswers, TestServer, wordEnvironment } from '../support/serve/test-server.ts'

test('cancelling a running rollout aborts its upstream request', async () => {
  const answers = new HeldAnswers()
  await using server = await TestServer.start(answers.script)
  const reply = server.post({ task: { word: 'apple' } })
  await expect.poll(() => answers.asked.has('apple')).toBe(true)
  expect(await server.delete('/v1/rollouts/0-0')).toMatchObject({
    status: 202,
    body: { id: '0-0', state: 'running', cancelling: true },
  })
  expect((await reply).body).toMatchObject({ id: '0-0', outcome: 'cancelled', reward: null })
  expect(answers.aborted).toEqual(new Set(['apple']))
  expect(await server.delete('/v1/rollouts/0-0')).toMatchObject({
    status: 200,
    body: { state: 'ended', cancelling: false },
  })
})

test('a queued rollout can be cancelled while it waits', async () => {
  const answers = new HeldAnswers()
  await using server = await TestServer.start(answers.script, { concurrency: 1 })
  const running = server.post({ task: { word: 'holds the place' } })
  await expect.poll(() => answers.asked.size).toBe(1)
  // The first one waits in the scheduler's hand, the second in the queue.
  const waiting = [server.post({ task: { word: 'next' } }), server.post({ task: { word: 'last' } })]
  await expect.poll(() => server.service.state('2-0')).toBe('queued')
  await server.delete('/v1/rollouts/2-0')
  expect((await waiting[1])?.body).toMatchObject({ id: '2-0', outcome: 'cancelled' })
  expect(server.service.state('0-0')).toBe('running')
  await server.delete('/v1/rollouts/1-0')
  answers.release('holds the place')
  expect((await running).body).toMatchObject({ outcome: 'completed' })
  expect((await waiting[0])?.body).toMatchObject({ id: '1-0', outcome: 'cancelled' })
  expect(answers.asked, 'neither was run').toEqual(new Set(['holds the place']))
})

test('a rollout that is queued or to be retried can be cancelled during a drain', async () => {
  const answers = new HeldAnswers()
  const script: Script = async (request) => {
    const answer = await answers.script(request)
    if (answer === 'you said fails') throw new MillraceError('model_rejected', 'not this one')
    return answer
  }
  await using server = await TestServer.start(script, { concurrency: 2, retries: 3 })
  // The last waits in the scheduler's hand.
  const lines = server.lines({ tasks: ['runs', 'fails', 'waits'].map((word) => ({ word })) })
  await expect.poll(() => answers.asked.size).toBe(2)
  const draining = server.service.drain()
  answers.release('fails')
  await expect.poll(() => server.service.state('1-0')).toBe('queued')
  expect(server.service.status()).toMatchObject({ queued: 2, running: 1 })
  for (const id of ['1-0', '2-0']) {
    expect((await server.delete(`/v1/rollouts/${id}`)).body).toMatchObject({ cancelling: true })
    await expect.poll(() => server.service.state(id)).toBe('ended')
  }
  answers.release('runs')
  await draining
  const outcomes = (await lines).map(({ id, attempt, outcome }) => ({ id, attempt, outcome }))
  expect(outcomes).toEqual([
    { id: '1-0', attempt: 2, outcome: 'cancelled' },
    { id: '2-0', attempt: 1, outcome: 'cancelled' },
    { id: '0-0', attempt: 1, outcome: 'completed' },
  ])
  expect(answers.asked, 'it was not run').not.toContain('waits')
})

test('cancelling a request cancels all its rollouts that have not ended', async () => {
  const answers = new HeldAnswers()
  await using server = await TestServer.start(answers.script, { concurrency: 2 })
  answers.release('done')
  const tasks = ['done', 'runs', 'runs too', 'waits'].map((word) => ({ word }))
  const lines = server.lines({ requestId: 'all', tasks })
  await expect.poll(() => server.service.state('0-0')).toBe('ended')
  await expect.poll(() => answers.asked.has('runs too')).toBe(true)
  expect((await server.delete('/v1/requests/all')).body).toEqual({ id: 'all', cancelling: 3 })
  const outcomes = Object.fromEntries((await lines).map(({ id, outcome }) => [id, outcome]))
  expect(outcomes).toEqual({ '0-0': 'completed', '1-0': 'cancelled', '2-0': 'cancelled', '3-0': 'cancelled' })
})

test('rows that the environment no longer accepts end when their request is cancelled', async () => {
  await using runs = await temporaryRuns()
  const run = { root: runs.root, name: 'served' }
  const answers = new HeldAnswers()
  const tasks = [{ word: 'a' }, { word: 'bb' }, { word: 'cc' }]
  {
    await using server = await TestServer.start(answers.script, { run, concurrency: 1 })
    await server.post({ requestId: 'all', tasks, detached: true })
    await expect.poll(() => answers.asked.size).toBe(1)
  }
  const environment = defineEnvironment({
    ...wordEnvironment,
    task: z.object({ word: z.string().max(1) }),
    prompt: ({ task }) => task.word,
    reward: () => 1,
  })
  const again = new HeldAnswers()
  await using server = await TestServer.start(again.script, { run, concurrency: 1, environment })
  await expect.poll(() => again.asked.size).toBe(1)
  // The second waits in the scheduler's hand, the third in the queue.
  await server.delete('/v1/requests/all')
  const text = await server.text('/v1/requests/all', { accept: 'application/x-ndjson' })
  expect(text.match(/"outcome":"\w+"/g)?.toSorted()).toEqual([
    '"outcome":"cancelled"',
    '"outcome":"env_error"',
    '"outcome":"env_error"',
  ])
})

test.each([
  ['at once', {}, 15_000],
  ['after a while if it gave its request an id', { requestId: 'left' }, 20],
])('a client that disconnects cancels its rollouts, %s', async (_when, named, abandonGraceMs) => {
  const answers = new HeldAnswers()
  await using server = await TestServer.start(answers.script, { concurrency: 1, bounds: { abandonGraceMs } })
  const { body } = await server.open({ ...named, tasks: [{ word: 'runs' }, { word: 'waits' }, { word: 'x' }] })
  await expect.poll(() => answers.asked.has('runs')).toBe(true)
  body.on('error', () => {})
  body.destroy()
  await expect.poll(() => answers.aborted.has('runs')).toBe(true)
  await expect
    .poll(() => ['0-0', '1-0', '2-0'].map((id) => server.service.state(id)))
    .toEqual(['ended', 'ended', 'ended'])
  expect(server.service.record('2-0')).toMatchObject({ outcome: 'cancelled' })
  expect(answers.asked).toEqual(new Set(['runs']))
})

test('a client that disconnects while it waits for a single result cancels its rollout', async () => {
  const answers = new HeldAnswers()
  await using server = await TestServer.start(answers.script)
  const leaving = new AbortController()
  const reply = fetch(`${server.httpServer.url}/v1/rollouts`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ task: { word: 'apple' } }),
    signal: leaving.signal,
  })
  await expect.poll(() => answers.asked.has('apple')).toBe(true)
  leaving.abort()
  await expect(reply).rejects.toThrow('abort')
  await expect.poll(() => answers.aborted.has('apple')).toBe(true)
  await expect.poll(() => server.service.state('0-0')).toBe('ended')
})

/** Leaving is told to the service itself: over HTTP nothing says when a server has noticed that a client has gone. */
const shared = { requestId: 'shared', tasks: [{ word: 'a' }, { word: 'b' }] }

test('a client that disconnects does not cancel a request that another client reads', async () => {
  const answers = new HeldAnswers()
  await using server = await TestServer.start(answers.script, { bounds: { abandonGraceMs: 0 } })
  const leaves = await server.service.submit(shared)
  const stays = await server.service.submit(shared)
  await expect.poll(() => answers.asked.size).toBe(2)
  await leaves.results.return()
  answers.release('a', 'b')
  const results = await Array.fromAsync(stays.results)
  expect(results.map(({ record }) => record?.outcome)).toEqual(['completed', 'completed'])
})

test('a client whose connection broke can rejoin its rollouts', async () => {
  const answers = new HeldAnswers()
  await using server = await TestServer.start(answers.script)
  const first = await server.service.submit(shared)
  await expect.poll(() => answers.asked.size).toBe(2)
  await first.results.return()
  const again = server.lines(shared)
  answers.release('a', 'b')
  expect((await again).map(({ outcome }) => outcome)).toEqual(['completed', 'completed'])
  expect(answers.aborted.size).toBe(0)
})

test('a request that is repeated as detached is no longer cancelled with its client', async () => {
  const answers = new HeldAnswers()
  await using server = await TestServer.start(answers.script, { bounds: { abandonGraceMs: 0 } })
  const first = await server.service.submit(shared)
  await expect.poll(() => answers.asked.size).toBe(2)
  expect((await server.post({ ...shared, detached: true })).status).toBe(202)
  await first.results.return()
  answers.release('a', 'b')
  const text = await server.text('/v1/requests/shared', { accept: 'application/x-ndjson' })
  expect(text.match(/"outcome":"completed"/g)).toHaveLength(2)
})

test('a request that was repeated as detached stays detached in the next launch', async () => {
  await using runs = await temporaryRuns()
  const run = { root: runs.root, name: 'served' }
  const options = { run, bounds: { abandonGraceMs: 0 } }
  {
    const answers = new HeldAnswers()
    await using server = await TestServer.start(answers.script, options)
    await server.service.submit(shared)
    await expect.poll(() => answers.asked.size).toBe(2)
    expect((await server.post({ ...shared, detached: true })).status).toBe(202)
  }
  const answers = new HeldAnswers()
  await using server = await TestServer.start(answers.script, options)
  await expect.poll(() => answers.asked.size).toBe(2)
  const { request, results } = await server.service.submit(shared)
  expect(request.isDetached).toBe(true)
  await results.return()
  answers.release('a', 'b')
  await expect.poll(() => server.service.rollouts(request).every(({ state }) => state === 'ended')).toBe(true)
  expect(server.service.record('0-0')).toMatchObject({ outcome: 'completed' })
})

test('a detached request continues when its readers disconnect', async () => {
  const answers = new HeldAnswers()
  await using server = await TestServer.start(answers.script)
  await server.post({ requestId: 'detached', task: { word: 'apple' }, detached: true })
  await expect.poll(() => answers.asked.size).toBe(1)
  const looking = await fetch(`${server.httpServer.url}/v1/requests/detached`, {
    headers: { accept: 'application/x-ndjson' },
  })
  await looking.body?.cancel()
  answers.release('apple')
  await expect.poll(() => server.service.state('0-0')).toBe('ended')
  expect(server.service.record('0-0')).toMatchObject({ outcome: 'completed' })
})

test('a group is settled although one member was cancelled', async () => {
  const answers = new HeldAnswers()
  const environment = defineEnvironment({
    name: 'groups',
    task: z.object({ word: z.string() }),
    tasks: () => [],
    prompt: ({ task }) => task.word,
    reward: { best: { group: ({ members }) => members.map(() => 1) } },
  })
  await using server = await TestServer.start(answers.script, { environment, attempts: 3, concurrency: 1 })
  const lines = server.lines({ task: { word: 'apple' } })
  await expect.poll(() => answers.asked.size).toBe(1)
  // The second is the next to run, the third waits behind it.
  await server.delete('/v1/rollouts/0-1')
  await server.delete('/v1/rollouts/0-2')
  answers.release('apple')
  const outcomes = (await lines).map(({ id, outcome, reward }) => ({ id, outcome, reward }))
  expect(outcomes).toEqual([
    { id: '0-0', outcome: 'completed', reward: 1 },
    { id: '0-1', outcome: 'cancelled', reward: null },
    { id: '0-2', outcome: 'cancelled', reward: null },
  ])
  expect((await server.post({ task: { word: 'pear' }, attempts: 2 })).body).toMatchObject({ error: { code: 'usage' } })
})
