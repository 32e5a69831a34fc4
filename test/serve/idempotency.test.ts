import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { echo, HeldAnswers, TestServer, type RecordLine } from '../support/serve/test-server.ts'

const request = { requestId: 'again', tasks: [{ word: 'a' }, { word: 'b' }] }

test('a repeated request joins its running rollouts', async () => {
  const answers = new HeldAnswers()
  await using server = await TestServer.start(answers.script)
  const both = [server.lines(request), server.lines(request)]
  await expect.poll(() => answers.asked.size).toBe(2)
  answers.release('a', 'b')
  const [first, second] = await Promise.all(both)
  expect(second?.toSorted(byId)).toEqual(first?.toSorted(byId))
  expect(server.backend.requests).toHaveLength(2)
})

test('a request repeated after its end gets the same rollouts', async () => {
  await using server = await TestServer.start(echo)
  const first = await server.lines(request)
  const second = await server.lines(request)
  expect(second.toSorted(byId)).toEqual(first.toSorted(byId))
  expect(server.backend.requests).toHaveLength(2)
})

test.each([
  ['other tasks', { tasks: [{ word: 'a' }, { word: 'c' }] }],
  ['more attempts', { attempts: 2 }],
  ['other sampling', { sampling: { temperature: 0.3 } }],
])('the same request id with %s is refused, and nothing runs', async (_what, change) => {
  await using server = await TestServer.start(echo)
  await server.lines(request)
  const { status, body } = await server.post({ ...request, ...change })
  expect(status).toBe(409)
  expect(body).toMatchObject({ error: { code: 'run_mismatch', data: { requestId: 'again' } } })
  expect(server.backend.requests).toHaveLength(2)
})

test('a restarted server knows the requests of its run', async () => {
  await using runs = await temporaryRuns()
  const run = { root: runs.root, name: 'served' }
  let first
  {
    await using server = await TestServer.start(echo, { run })
    first = await server.lines(request)
  }
  await using server = await TestServer.start(echo, { run })
  expect((await server.lines(request)).toSorted(byId)).toEqual(first.toSorted(byId))
  expect(server.backend.requests).toHaveLength(0)
  expect((await server.post({ ...request, tasks: [{ word: 'z' }] })).status).toBe(409)
  const next = await server.post({ task: { word: 'c' } })
  expect(next.body['id'], 'numbers go on where they were').toBe('2-0')
})

test('the next launch finishes open rollouts with their requested sampling', async () => {
  await using runs = await temporaryRuns()
  const run = { root: runs.root, name: 'served' }
  const answers = new HeldAnswers()
  answers.release('a')
  {
    await using server = await TestServer.start(answers.script, { run, concurrency: 2 })
    const tasks = [{ word: 'a' }, { word: 'b' }, { word: 'c' }, { word: 'd' }]
    await server.post({ requestId: 'long', tasks, sampling: { temperature: 0.25 }, detached: true })
    await expect.poll(() => server.service.state('0-0')).toBe('ended')
    await expect.poll(() => answers.asked.has('c')).toBe(true)
  }
  await using server = await TestServer.start(echo, { run })
  const text = await server.text('/v1/requests/long', { accept: 'application/x-ndjson' })
  const records = text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as { id: string; outcome: string })
  expect(records.map(({ id }) => id).toSorted()).toEqual(['0-0', '1-0', '2-0', '3-0'])
  expect(records.every(({ outcome }) => outcome === 'completed')).toBe(true)
  const asked = server.backend.requests.map(({ messages }) => messages[0]?.content)
  expect(new Set(asked)).toEqual(new Set(['b', 'c', 'd']))
  expect(asked).toHaveLength(3)
  expect(server.backend.requests.every(({ sampling }) => sampling.temperature === 0.25)).toBe(true)
})

test('stored rollouts with sampling of a later version fail with that reason, and the others run', async () => {
  await using runs = await temporaryRuns()
  const run = { root: runs.root, name: 'served' }
  const answers = new HeldAnswers()
  answers.release('a')
  {
    await using server = await TestServer.start(answers.script, { run, concurrency: 2 })
    const tasks = [{ word: 'a' }, { word: 'b' }, { word: 'c' }]
    await server.post({ requestId: 'later', tasks, sampling: { temperature: 0.25 }, detached: true })
    await server.post({ requestId: 'known', task: { word: 'd' }, detached: true })
    await expect.poll(() => server.service.state('0-0')).toBe('ended')
    await expect.poll(() => answers.asked.has('b')).toBe(true)
  }
  const database = new DatabaseSync(join(runs.root, 'served', 'journal.sqlite'))
  const later = "UPDATE event SET data = json_set(data, '$.sampling.minP', 0.1) WHERE data ->> '$.id' = 'later'"
  expect(database.prepare(later).run().changes).toBe(1)
  database.close()

  await using server = await TestServer.start(echo, { run })
  const endsOf = async (id: string): Promise<unknown[]> => {
    const text = await server.text(`/v1/requests/${id}`, { accept: 'application/x-ndjson' })
    const records = text
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as RecordLine)
    return records.toSorted(byId).map(({ id: rollout, attempt, outcome, error }) => [rollout, attempt, outcome, error])
  }
  const error = {
    code: 'store_version',
    message: expect.stringMatching(
      /by another version of Millrace: sampling: `minP` is not known.*send it again with another id/,
    ),
  }
  expect(await endsOf('later')).toEqual([
    ['0-0', 1, 'completed', undefined],
    // Its first attempt was cut off, and stays what it is.
    ['1-0', 2, 'env_error', expect.objectContaining(error)],
    ['2-0', expect.any(Number), 'env_error', expect.objectContaining(error)],
  ])
  expect(await endsOf('known')).toEqual([['3-0', 1, 'completed', undefined]])
})

test('a request of many tasks is stored in parts and restored completely', async () => {
  await using runs = await temporaryRuns()
  const run = { root: runs.root, name: 'served' }
  const tasks = Array.from({ length: 1_234 }, (_, index) => ({ word: `word ${index}` }))
  const answers = new HeldAnswers()
  {
    await using server = await TestServer.start(answers.script, { run, concurrency: 1 })
    expect((await server.post({ requestId: 'many', tasks, detached: true })).status).toBe(202)
    await expect.poll(() => answers.asked.size).toBe(1)
  }
  await using server = await TestServer.start(echo, { run })
  const lines = await server.lines({ requestId: 'many', tasks })
  const byTask = Object.fromEntries(lines.map(({ id, answer }) => [id, answer]))
  expect(byTask).toEqual(Object.fromEntries(tasks.map(({ word }, index) => [`${index}-0`, `you said ${word}`])))
})

test('a server cannot use the run of an evaluation', async () => {
  await using runs = await temporaryRuns()
  const { evaluate } = await import('millrace')
  const { ScriptedBackend } = await import('millrace/testing')
  const { wordEnvironment } = await import('../support/serve/test-server.ts')
  await evaluate({
    environment: { ...wordEnvironment, tasks: () => [{ word: 'a' }] },
    model: { name: 'scripted', backends: [{ url: 'http://scripted.invalid' }] },
    backends: { scripted: [new ScriptedBackend(echo)] },
    preflight: false,
    run: { root: runs.root, name: 'mine' },
  }).summary()
  const starting = TestServer.start(echo, { run: { root: runs.root, name: 'mine' } })
  await expect(starting).rejects.toMatchObject({ code: 'run_mismatch' })
})

function byId(one: { id: string }, other: { id: string }): number {
  return one.id < other.id ? -1 : 1
}
