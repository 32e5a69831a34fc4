import { readdir } from 'node:fs/promises'
import { temporaryRuns } from 'millrace/testing'
import { expect, test, vi } from 'vitest'
import { activeResources, leftSince } from '../support/kit/active-resources.ts'
import type { RolloutServer } from '../../src/serve/index.ts'
import { echo, HeldAnswers, linesOf, TestServer } from '../support/serve/test-server.ts'

test('closing during work leaves no resources open', async () => {
  const before = activeResources()
  {
    const answers = new HeldAnswers()
    await using server = await TestServer.start(answers.script, { concurrency: 2, captureTokens: true })
    answers.release('ends')
    await server.post({ task: { word: 'ends' }, include: 'tokens' })
    const tasks = [{ word: 'runs' }, { word: 'runs too' }, { word: 'waits' }]
    const { body } = await server.open({ tasks })
    await expect.poll(() => answers.asked.size).toBe(3)
    const lines = linesOf(body)
    await Promise.all([server.service.close(), server.service.close()])
    const last = await lines.next()
    expect(JSON.parse(String(last.value))).toMatchObject({ error: { code: 'closed' } })
    expect((await server.post({ task: { word: 'late' } })).status).toBe(503)
    expect((await server.get('/ready')).body).toEqual({ status: 'not ready', why: 'the server is closed' })
  }
  expect(await leftSince(before)).toEqual([])
})

test('a service that fails to start leaves no resources open', async () => {
  await using runs = await temporaryRuns()
  const before = activeResources()
  const starting = TestServer.start(
    () => {
      throw new Error('wrong key')
    },
    { preflight: true, run: { root: runs.root } },
  )
  await expect(starting).rejects.toMatchObject({ code: 'model_server_error' })
  expect(await readdir(runs.root)).toEqual([])
  expect(await leftSince(before)).toEqual([])
})

test('draining lets running rollouts end, and leaves queued ones to the next launch', async () => {
  const answers = new HeldAnswers()
  await using server = await TestServer.start(answers.script, { concurrency: 1 })
  const running = server.post({ task: { word: 'runs' } })
  await expect.poll(() => answers.asked.has('runs')).toBe(true)
  const waiting = server.post({ task: { word: 'waits' } })
  await expect.poll(() => server.service.state('1-0')).toBe('queued')
  const whenDrained = server.service.drain().then(() => server.service.state('0-0'))
  expect((await server.get('/ready')).status).toBe(503)
  expect((await server.post({ task: { word: 'late' } })).body).toMatchObject({ error: { code: 'closed' } })
  answers.release('runs')
  expect((await running).body).toMatchObject({ outcome: 'completed' })
  expect(await whenDrained).toBe('ended')
  expect((await waiting).body).toMatchObject({ error: { code: 'closed' } })
  expect(answers.asked).toEqual(new Set(['runs']))
})

test('closing twice, or draining and closing, closes once', async () => {
  await using server = await TestServer.start(echo)
  await server.post({ task: { word: 'a' } })
  await server.service.drain()
  await server.service.drain()
  await Promise.all([
    server.service.close(),
    server.httpServer.close(),
    server.service.close(),
    server.httpServer.close(),
  ])
  expect(server.service.status().state).toBe('closed')
})

test('an HTTP server closes after the last reply, although its client keeps the connection', async () => {
  const answers = new HeldAnswers()
  await using server = await TestServer.start(answers.script)
  const { body } = await server.open({ tasks: [{ word: 'a' }, { word: 'b' }] })
  await expect.poll(() => answers.asked.size).toBe(2)
  const closing = closeWithPatience(server.httpServer)
  answers.release('a', 'b')
  expect((await body.text()).trimEnd().split('\n')).toHaveLength(2)
  await closing
})

/** The time after which those who keep it open are cut off never comes. */
function closeWithPatience(httpServer: RolloutServer): Promise<void> {
  vi.useFakeTimers({ toFake: ['setTimeout'] })
  try {
    const closing = httpServer.close()
    expect(vi.getTimerCount()).toBe(1)
    return closing
  } finally {
    vi.useRealTimers()
  }
}
