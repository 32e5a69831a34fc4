import { expect, test } from 'vitest'
import { CodecPool } from '../../src/serve/codec-pool.ts'
import { echo, TestServer } from './_server.ts'

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

test('threads follow the load up to the limit, and what waited is reported', async () => {
  await using parts = await poolWithRollout(2)
  const { pool } = parts
  expect(pool.status()).toMatchObject({ threads: 1, maxThreads: 2, jobs: 0 })
  const replies = Array.from({ length: 40 }, () => Array.fromAsync(pool.encode('0-0', 'record')))
  for (const chunks of await Promise.all(replies)) {
    expect(Buffer.concat(chunks).toString()).toContain(long)
    expect(Math.max(...chunks.map(({ length }) => length))).toBeLessThanOrEqual(512 * 1024)
  }
  const { threads, jobs, queued, queueWaitMaxMs, replyP99Ms } = pool.status()
  expect({ threads, jobs, queued }).toEqual({ threads: 2, jobs: 0, queued: 0 })
  expect(queueWaitMaxMs).toBeGreaterThan(0)
  expect(replyP99Ms).toBeGreaterThan(0)
})

test('a reply that nobody reads takes a place, not the thread; one that is left gives its place back', async () => {
  await using parts = await poolWithRollout(1)
  const { pool } = parts
  const stalled = Array.from({ length: 7 }, () => pool.encode('0-0', 'record'))
  for (const reply of stalled) expect((await reply.next()).done).toBe(false)
  expect(pool.status().jobs).toBe(7)
  expect(await Array.fromAsync(pool.encode('0-0', 'record'))).not.toEqual([])
  await Promise.all(stalled.map((reply) => reply.return()))
  await expect.poll(() => pool.status().jobs).toBe(0)
})

test('too many at once are refused, and the others are answered', async () => {
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

test('what is not there fails by itself; closing fails what is under way', async () => {
  await using parts = await poolWithRollout(1)
  const { pool } = parts
  await expect(Array.fromAsync(pool.encode('9-9', 'record'))).rejects.toMatchObject({ code: 'internal' })
  const reply = pool.encode('0-0', 'record')
  await reply.next()
  const rest = Array.fromAsync(reply)
  const settled = rest.then(
    () => 'ended',
    () => 'failed',
  )
  await Promise.all([pool.close(), pool.close()])
  expect(await settled).toMatch(/ended|failed/)
  await expect(pool.heads(['0-0'])).rejects.toMatchObject({ code: 'closed' })
})

test('a run that cannot be read is said to be, at once', async () => {
  await expect(CodecPool.start('/nowhere', 1)).rejects.toMatchObject({ code: 'worker_lost' })
})

test('a client that leaves in the middle of a large body leaves nothing behind', async () => {
  await using server = await TestServer.start(echo, { bounds: { maxBodiesBytes: 3_000_000 } })
  const { connect } = await import('node:net')
  const head = 'POST /v1/rollouts HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 2000000'
  const socket = connect(Number(new URL(server.door.url).port), '127.0.0.1')
  socket.write(`${head}\r\n\r\n{"tasks":[${'{"word":"half"},'.repeat(20_000)}`)
  await expect.poll(() => server.service.status().codec.jobs).toBe(1)
  const tasks = Array.from({ length: 10_000 }, () => ({ word: 'w'.repeat(150) }))
  expect((await server.post({ tasks })).body, 'together they would be too much').toMatchObject({
    error: { code: 'overloaded' },
  })
  socket.destroy()
  await expect.poll(() => server.service.status().codec.jobs).toBe(0)
  expect((await server.post({ tasks, detached: true })).status).toBe(202)
})

test('a client that leaves at once leaves nothing running', async () => {
  await using server = await TestServer.start(() => new Promise<string>(() => {}))
  const { connect } = await import('node:net')
  const body = JSON.stringify({ task: { word: 'gone' } })
  const head = `POST /v1/rollouts HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: ${body.length}`
  for (let client = 0; client < 20; client += 1) {
    const socket = connect(Number(new URL(server.door.url).port), '127.0.0.1')
    socket.end(`${head}\r\n\r\n${body}`)
  }
  await expect.poll(() => server.service.status().accepted.rollouts).toBe(20)
  await expect.poll(() => server.service.status().outcomes.cancelled).toBe(20)
  await using other = await TestServer.start(echo)
  expect((await other.post({ task: { word: 'fine' } })).status).toBe(200)
})
