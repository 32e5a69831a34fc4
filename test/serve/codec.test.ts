import { once } from 'node:events'
import { rename } from 'node:fs/promises'
import { connect, type Socket } from 'node:net'
import { join } from 'node:path'
import type { MillraceError } from 'millrace'
import { expect, test, vi } from 'vitest'
import { runningThreads, threadsSince } from '../support/kit/running-threads.ts'
import { CodecPool } from '../../src/serve/codec/codec-pool.ts'
import { RolloutServer } from '../../src/serve/index.ts'
import { echo, TestServer } from '../support/serve/test-server.ts'

const long = 'x'.repeat(3_000_000)

/** A pool of its own beside the server's, over a run with one large rollout. */
async function poolWithRollout(
  maxThreads: number,
  answer = long,
): Promise<AsyncDisposable & { readonly pool: CodecPool }> {
  await using parts = new AsyncDisposableStack()
  const server = parts.use(await TestServer.start(() => answer))
  await server.post({ task: { word: 'large' } })
  const pool = parts.use(await CodecPool.start(server.service.info.folder, maxThreads))
  const ends = parts.move()
  return { pool, [Symbol.asyncDispose]: () => ends[Symbol.asyncDispose]() }
}

/** A client that has sent half of a large body. */
function halfUpload(
  { url }: RolloutServer,
  bytes: number,
): Disposable & { readonly socket: Socket; readonly written: Promise<void> } {
  const socket = connect(Number(new URL(url).port), '127.0.0.1')
  const head = 'POST /v1/rollouts HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json'
  const half = `{"tasks":[${'{"word":"half"},'.repeat(bytes / 2 / 16)}`
  const written = Promise.withResolvers<void>()
  socket.write(`${head}\r\ncontent-length: ${bytes}\r\n\r\n${half}`, () => written.resolve())
  socket.on('error', () => {})
  return { socket, written: written.promise, [Symbol.dispose]: () => void socket.destroy() }
}

test('threads follow the load up to the limit, and waiting times are reported', async () => {
  await using parts = await poolWithRollout(2)
  const { pool } = parts
  expect(pool.status()).toMatchObject({ threads: 1, maxThreads: 2, jobs: 0 })
  const replies = Array.from({ length: 40 }, () => Array.fromAsync(pool.encode('0-0', 'record')))
  for (const chunks of await Promise.all(replies)) {
    expect(Buffer.concat(chunks).toString()).toContain(long)
    expect(Math.max(...chunks.map(({ length }) => length))).toBeLessThanOrEqual(512 * 1024)
  }
  const { threads, jobs, queued, queueWaitP99Ms, queueWaitMaxMs, replyP99Ms } = pool.status()
  expect({ threads, jobs, queued }).toEqual({ threads: 2, jobs: 0, queued: 0 })
  // Forty at once are more than two threads take up, and none is answered before it is taken up.
  expect(queueWaitP99Ms).toBeGreaterThan(0)
  expect(queueWaitMaxMs).toBeGreaterThanOrEqual(queueWaitP99Ms)
  expect(replyP99Ms).toBeGreaterThanOrEqual(queueWaitP99Ms - 1)
})

test('the wait for a thread is not measured with the wall clock', async () => {
  await using parts = await poolWithRollout(1, 'short')
  const startMs = performance.now()
  const dayBefore = Date.now() - 86_400_000
  const wallClock = vi.spyOn(Date, 'now').mockReturnValue(dayBefore)
  using _wallClock = { [Symbol.dispose]: () => wallClock.mockRestore() }
  await parts.pool.heads(['0-0'])
  expect(parts.pool.status().queueWaitMaxMs).toBeLessThanOrEqual(performance.now() - startMs)
})

test('unread replies do not delay others up to a limit, and an abandoned reply frees its slot', async () => {
  await using parts = await poolWithRollout(1)
  const { pool } = parts
  const stalled = Array.from({ length: 63 }, () => pool.encode('0-0', 'record'))
  for (const reply of stalled) expect((await reply.next()).done).toBe(false)
  expect(pool.status().jobs).toBe(63)
  expect(await Array.fromAsync(pool.encode('0-0', 'record'))).not.toEqual([])
  const last = pool.encode('0-0', 'record')
  expect((await last.next()).done).toBe(false)
  const beyond = pool.heads(['0-0'])
  expect(pool.status()).toMatchObject({ jobs: 64, queued: 1 })
  await last.return()
  expect(await beyond).toMatchObject([{ id: '0-0' }])
  await Promise.all(stalled.map((reply) => reply.return()))
  await expect.poll(() => pool.status().jobs).toBe(0)
})

test('jobs beyond the limit are refused, and the others are answered', async () => {
  await using parts = await poolWithRollout(1, 'short')
  const { pool } = parts
  const asked = await Promise.allSettled(Array.from({ length: 1_500 }, () => pool.heads(['0-0'])))
  const refused = asked.filter((each) => each.status === 'rejected')
  expect(refused.length).toBeGreaterThan(0)
  expect(refused.every(({ reason }) => (reason as { code: string }).code === 'overloaded')).toBe(true)
  const answered = asked.filter((each) => each.status === 'fulfilled')
  expect(answered.every(({ value }) => value[0]?.id === '0-0')).toBe(true)
  expect(await pool.heads(['0-0', '9-9'])).toMatchObject([{ id: '0-0', outcome: 'completed' }])
})

test('a missing rollout fails only its own job; closing fails running jobs', async () => {
  await using parts = await poolWithRollout(1)
  const { pool } = parts
  await expect(Array.fromAsync(pool.encode('9-9', 'record'))).rejects.toMatchObject({ code: 'internal' })
  const threads = runningThreads().size
  const reply = pool.encode('0-0', 'record')
  await reply.next()
  const rest = Array.fromAsync(reply)
  // Eleven more chunks are to come, and no more than four are under way.
  const failed = expect(rest).rejects.toMatchObject({ code: expect.stringMatching(/^(closed|cancelled)$/) as string })
  await Promise.all([pool.close(), pool.close()])
  await failed
  expect(runningThreads().size).toBe(threads - 1)
  await expect(pool.heads(['0-0'])).rejects.toMatchObject({ code: 'closed' })
})

test('a run that cannot be read is reported at once', async () => {
  const before = runningThreads()
  await expect(CodecPool.start('/nowhere', 1)).rejects.toMatchObject({ code: 'worker_lost' })
  expect(threadsSince(before)).toBe(0)
})

test('a thread that fails to start does not affect jobs on other threads', async () => {
  await using server = await TestServer.start(() => long)
  await server.post({ task: { word: 'large' } })
  const { folder } = server.service.info
  await using pool = await CodecPool.start(folder, 2)
  // From here on only who has the database open can read it.
  const path = join(folder, 'journal.sqlite')
  await rename(path, `${path}-elsewhere`)
  await using _back = { [Symbol.asyncDispose]: () => rename(`${path}-elsewhere`, path) }
  const replies = Array.from({ length: 40 }, () => Array.fromAsync(pool.encode('0-0', 'record')))
  for (const chunks of await Promise.all(replies)) expect(Buffer.concat(chunks).toString()).toContain(long)
  expect(pool.status()).toMatchObject({ jobs: 0, queued: 0 })
})

test('a client that disconnects during a large body leaves nothing behind', async () => {
  await using server = await TestServer.start(echo, { bounds: { maxBodiesBytes: 2_000_000 } })
  const faults: MillraceError[] = []
  await using httpServer = await RolloutServer.open({
    service: server.service,
    port: 0,
    onFault: (error) => faults.push(error),
  })
  const post = async (body: object): Promise<number> => {
    const headers = { 'content-type': 'application/json' }
    return (await fetch(`${httpServer.url}/v1/rollouts`, { method: 'POST', headers, body: JSON.stringify(body) }))
      .status
  }
  using client = halfUpload(httpServer, 2_000_000)
  await once(client.socket, 'connect')
  const tasks = Array.from({ length: 10_000 }, () => ({ word: 'w'.repeat(150) }))
  // Together they are too much. Until the first has come, the second is refused for a task that does not fit.
  await expect.poll(() => post({ tasks: [...tasks, 'not one of them'] })).toBe(429)
  client.socket.destroy()
  await expect.poll(() => post({ tasks, detached: true })).toBe(202)
  expect(faults, 'a client that leaves is no fault of the server').toEqual([])
})

test('slow uploads do not delay other clients', async () => {
  await using server = await TestServer.start(echo)
  await using slow = new AsyncDisposableStack()
  const clients = Array.from({ length: 60 }, () => slow.use(halfUpload(server.httpServer, 400_000)))
  // Once the server has taken what was written, it waits for the rest.
  await Promise.all(clients.map(({ written }) => written))
  const tasks = Array.from({ length: 2_000 }, () => ({ word: 'w'.repeat(150) }))
  expect((await server.post({ tasks, detached: true })).status).toBe(202)
})

test('announced bodies that never arrive do not block other clients', async () => {
  await using server = await TestServer.start(echo, { bounds: { maxBodyBytes: 1_000, maxBodiesBytes: 2_000 } })
  await using silent = new AsyncDisposableStack()
  const head = 'POST /v1/rollouts HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nexpect: 100-continue'
  for (let client = 0; client < 4; client += 1) {
    const socket = silent.adopt(
      connect(Number(new URL(server.httpServer.url).port), '127.0.0.1'),
      (end) => void end.destroy(),
    )
    socket.write(`${head}\r\ncontent-length: 1000\r\n\r\n`)
    const [answer] = (await once(socket, 'data')) as [Buffer]
    expect(answer.toString()).toMatch(/^HTTP\/1.1 100 /)
  }
  expect((await server.post({ task: { word: 'w'.repeat(900) } })).status).toBe(200)
})

test('clients that disconnect at once leave nothing running', async () => {
  await using server = await TestServer.start(() => new Promise<string>(() => {}))
  const body = JSON.stringify({ task: { word: 'gone' } })
  const head = `POST /v1/rollouts HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: ${body.length}`
  for (let client = 0; client < 20; client += 1) {
    const socket = connect(Number(new URL(server.httpServer.url).port), '127.0.0.1')
    socket.end(`${head}\r\n\r\n${body}`)
  }
  await expect.poll(() => server.service.status().accepted.rollouts).toBe(20)
  await expect.poll(() => server.service.status().outcomes.cancelled).toBe(20)
  await using other = await TestServer.start(echo)
  expect((await other.post({ task: { word: 'fine' } })).status).toBe(200)
})
