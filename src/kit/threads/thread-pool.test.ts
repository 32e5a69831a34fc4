import { writeFileSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { activeResources, leftSince } from '../../../test/support/kit/active-resources.ts'
import { runningThreads, threadsSince } from '../../../test/support/kit/running-threads.ts'
import { ThreadPool, type ThreadPoolOptions } from './thread-pool.ts'

/** The jobs of the test thread: each is a word, and some are followed by a number. */
const threadCode = `
import { workerData } from 'node:worker_threads'
import { serveJobs } from ${JSON.stringify(new URL('./serve-jobs.ts', import.meta.url).href)}
const run = async (work, outputs) => {
  const [word, count] = work.word.split(' ')
  if (word === 'exit') process.exit(7)
  if (word === 'throw') throw new Error('too odd')
  if (word === 'hang') await new Promise(() => {})
  if (word === 'spin') for (;;) {}
  if (word === 'function') return { value: () => 1 }
  if (word === 'count') for (let index = 0; index < Number(count); index += 1) await outputs.send(index)
  return { value: word }
}
if (workerData === 'exits') process.exit(4)
await serveJobs({
  errorCode: 'internal',
  start: () => {
    if (workerData === 'throws') throw new Error('cannot start')
    return run
  },
})
`

interface Word {
  readonly word: string
  readonly value?: unknown
}

let folder: string
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'millrace-threads-'))
  writeFileSync(join(folder, 'thread.mjs'), threadCode)
})
afterAll(() => rm(folder, { recursive: true, force: true }))

function poolOf(options: Partial<ThreadPoolOptions> & { max?: number } = {}): ThreadPool<Word, string, number> {
  return new ThreadPool({
    entry: pathToFileURL(join(folder, 'thread.mjs')),
    name: 'test',
    maxThreads: () => options.max ?? 1,
    jobsPerThread: 2,
    crowdedJobs: 2,
    maxQueued: 100,
    whenFull: 'wait',
    onAbort: 'cancel',
    died: (why) => why,
    ...options,
  })
}

test('threads follow the load up to the limit', async () => {
  await using pool = poolOf({ max: 3 })
  const all = Array.from({ length: 50 }, () => pool.run({ word: 'yes' }))
  expect(pool.status()).toMatchObject({ threads: 3, queued: 50 })
  expect(new Set(await Promise.all(all))).toEqual(new Set(['yes']))
  const { waitP99Ms, waitMaxMs, ...rest } = pool.status()
  expect(rest).toEqual({ threads: 3, queued: 0, running: 0, failedStarts: 0 })
  expect(waitP99Ms).toBeGreaterThan(0)
  expect(waitMaxMs).toBeGreaterThanOrEqual(waitP99Ms)
})

test('idle threads end, except for one', async () => {
  await using pool = poolOf({ max: 3 })
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval', 'performance'] })
  using _timers = { [Symbol.dispose]: () => vi.useRealTimers() }
  const before = runningThreads()
  await Promise.all(Array.from({ length: 20 }, () => pool.run({ word: 'yes' })))
  expect(pool.status().threads).toBe(3)
  // One may have started too late to get a job.
  const threadsLater = (): number => {
    vi.advanceTimersByTime(60_000)
    return pool.status().threads
  }
  await expect.poll(threadsLater).toBe(1)
  await expect.poll(() => threadsSince(before)).toBe(1)
  expect(await pool.run({ word: 'yes' })).toBe('yes')
})

test('a full queue refuses further jobs and says what to do', async () => {
  await using pool = poolOf({ maxQueued: 1, whenFull: 'wait a moment' })
  await pool.warm()
  const running = [pool.run({ word: 'hang' }), pool.run({ word: 'hang' }), pool.run({ word: 'yes' })]
  for (const job of running) job.catch(() => {})
  await expect(pool.run({ word: 'yes' })).rejects.toMatchObject({
    code: 'overloaded',
    rawMessage: '1 jobs already wait for a thread (test); wait a moment',
  })
})

test('a thread that dies fails its own jobs, and is replaced', async () => {
  const before = runningThreads()
  await using pool = poolOf({ jobsPerThread: 1, crowdedJobs: 1, died: (why) => new Error(`died: ${why.message}`) })
  const doomed = pool.run({ word: 'exit' })
  const after = pool.run({ word: 'yes' })
  await expect(doomed).rejects.toThrow('died: it exited with code 7')
  expect(await after).toBe('yes')
  expect(threadsSince(before)).toBe(1)
})

test('a job that throws, or whose work or value cannot be cloned, fails alone', async () => {
  await using pool = poolOf()
  await expect(pool.run({ word: 'throw' })).rejects.toMatchObject({ code: 'internal', rawMessage: 'too odd' })
  await expect(pool.run({ word: 'function' })).rejects.toMatchObject({ code: 'internal' })
  await expect(pool.run({ word: 'yes', value: () => 1 })).rejects.toMatchObject({ name: 'DataCloneError' })
  expect(await pool.run({ word: 'yes' })).toBe('yes')
  expect(pool.status()).toMatchObject({ threads: 1, running: 0 })
})

test.each([
  ['throws', 'cannot start'],
  ['exits', 'it exited with code 4'],
])('if a thread %s on start, waiting jobs fail and the next job tries again', async (workerData, message) => {
  const before = runningThreads()
  await using pool = poolOf({ workerData })
  await expect(pool.warm()).rejects.toThrow(message)
  const jobs = await Promise.allSettled(Array.from({ length: 20 }, () => pool.run({ word: 'yes' })))
  for (const job of jobs)
    expect(job).toMatchObject({ status: 'rejected', reason: { message: expect.stringContaining(message) as string } })
  expect(pool.status()).toMatchObject({ threads: 0, queued: 0, failedStarts: 2 })
  await expect.poll(() => threadsSince(before)).toBe(0)
})

test('outputs arrive in order, and a job waits for a reader that does not take them', async () => {
  await using pool = poolOf()
  const slow = pool.stream({ word: 'count 1000' })
  expect(await slow.next()).toEqual({ done: false, value: 0 })
  expect(await Array.fromAsync(pool.stream({ word: 'count 20' }))).toEqual(
    Array.from({ length: 20 }, (_, index) => index),
  )
  expect(pool.status().running).toBe(1)
  await slow.return('')
  await expect.poll(() => pool.status().running).toBe(0)
})

test('an aborted job leaves the queue, and a running one is asked to end', async () => {
  await using pool = poolOf({ jobsPerThread: 1, crowdedJobs: 1 })
  await pool.warm()
  const waits: string[] = []
  const controller = new AbortController()
  const { signal } = controller
  const running = pool.run({ word: 'count 1000' }, { signal, onWaited: () => waits.push('running') })
  const waiting = pool.run({ word: 'yes' }, { signal, onWaited: () => waits.push('waiting') })
  expect(waits).toEqual(['running'])
  controller.abort(new Error('enough'))
  await expect(running).rejects.toThrow('enough')
  await expect(waiting).rejects.toThrow('enough')
  expect(waits).toEqual(['running', 'waiting'])
  await expect(pool.run({ word: 'yes' }, { signal })).rejects.toThrow('enough')
  expect(await pool.run({ word: 'yes' })).toBe('yes')
})

test('a job that blocks its thread ends with it at its timeout, and a warm thread takes its place', async () => {
  const before = runningThreads()
  await using pool = poolOf({ onAbort: 'terminate' })
  await pool.warm()
  const error = (place: string | undefined): Error => new Error(`late in ${place}`)
  await expect(pool.run({ word: 'spin' }, { timeout: { ms: 50, error } })).rejects.toThrow(
    /late in run \(.*thread\.mjs:\d+\)/,
  )
  await expect.poll(() => threadsSince(before)).toBe(1)
  expect(pool.status().threads).toBe(1)
  expect(await pool.run({ word: 'yes' }, { timeout: { ms: 60_000, error } })).toBe('yes')
})

test('closing fails all jobs, once, and leaves nothing behind', async () => {
  const before = { threads: runningThreads(), resources: activeResources() }
  const pool = poolOf({ onAbort: 'terminate' })
  await pool.warm()
  const jobs = ['spin', 'hang', 'yes'].map((word) => pool.run({ word }).catch((error: unknown) => error))
  const reason = new Error('enough')
  await Promise.all([pool.close(reason), pool.close()])
  expect(await Promise.all(jobs)).toEqual([reason, reason, reason])
  await expect(pool.run({ word: 'yes' })).rejects.toBe(reason)
  expect(threadsSince(before.threads)).toBe(0)
  await expect.poll(() => leftSince(before.resources)).toEqual([])
})
