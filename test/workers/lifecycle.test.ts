import { availableParallelism } from 'node:os'
import { threadId } from 'node:worker_threads'
import { MillraceError } from 'millrace'
import { temporaryRuns } from 'millrace/testing'
import { afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { maxWorkers, type WorkerPool } from '../../src/worker/index.ts'
import { expectNothingLeftSince, held, warmUp } from '../support/workers/held-resources.ts'
import { areRunning, countOutcomes, expectOneOutcomeEach, pooledRun, restarts } from '../support/workers/pooled-run.ts'

const refusal = 'MILLRACE_TEST_REFUSE'
const home = 'MILLRACE_TEST_HOME_THREAD'
const cancelled = new MillraceError('cancelled', 'no longer wanted')

let before: ReturnType<typeof held>
beforeAll(warmUp)
beforeEach(() => void (before = held()))
afterEach(() => expectNothingLeftSince(before))

describe.each(['thread', 'process'] as const)('under load, each worker a %s', (kind) => {
  test('a rolling restart replaces every worker without repeating an attempt', async () => {
    await using runs = await temporaryRuns()
    const records = await pooledRun({
      root: runs.root,
      kind,
      count: 400,
      startsPaused: true,
      during: async (run) => {
        await areRunning(run, 50)
        const isDraining = (): boolean => run.pool.workers().some(({ state }) => state === 'draining')
        await Promise.all([
          run.pool.restart(),
          expect
            .poll(isDraining)
            .toBe(true)
            .then(() => run.open()),
        ])
        await expect.poll(() => run.pool.workers().map((worker) => worker.restarts)).toEqual([1, 1])
      },
    })
    expect(countOutcomes(records)).toEqual({ completed: 400 })
    expect(new Set(records.map(({ attempt }) => attempt))).toEqual(new Set([1]))
    expectOneOutcomeEach(runs.root, records, 400)
  })

  test('rollouts that a draining worker does not finish in time start over elsewhere', async () => {
    await using runs = await temporaryRuns()
    const records = await pooledRun({
      root: runs.root,
      kind,
      count: 20,
      startsPaused: true,
      supervision: { retireTimeoutMs: 100 },
      during: async (run) => {
        await areRunning(run, 20)
        await run.pool.restart()
        await expect.poll(() => run.pool.workers().some(({ state }) => state === 'draining')).toBe(false)
        run.open()
      },
    })
    expect(countOutcomes(records)).toEqual({ completed: 20 })
    expect(records.every(({ attempt }) => attempt > 1)).toBe(true)
    expectOneOutcomeEach(runs.root, records, 20)
  })

  test('a drain lets running rollouts end and starts no new ones', async () => {
    await using runs = await temporaryRuns()
    const records = await pooledRun({
      root: runs.root,
      kind,
      count: 1_000,
      startsPaused: true,
      during: async (run) => {
        await areRunning(run, 50)
        run.scheduler.drain()
        run.open()
      },
    })
    expect(countOutcomes(records)).toEqual({ completed: 50 })
    expectOneOutcomeEach(runs.root, records, 50)
  })

  test('a rollout lost during a drain runs again, and the drain waits for it', async () => {
    await using runs = await temporaryRuns()
    const records = await pooledRun({
      root: runs.root,
      kind,
      count: 40,
      size: 1,
      startsPaused: true,
      supervision: { retireTimeoutMs: 100 },
      during: async (run) => {
        await areRunning(run, 40)
        run.scheduler.drain()
        // All of them are lost at once, with the worker that does not end them in its time.
        await run.pool.restart()
        await expect.poll(() => run.pool.workers().some(({ state }) => state === 'draining')).toBe(false)
        run.open()
      },
    })
    expect(countOutcomes(records)).toEqual({ completed: 40 })
    expect(new Set(records.map(({ attempt }) => attempt))).toEqual(new Set([2]))
    expectOneOutcomeEach(runs.root, records, 40)
  })

  test('the number of workers can change at any time', async () => {
    await using runs = await temporaryRuns()
    const most = Math.min(2 * Math.max(4, availableParallelism()), maxWorkers)
    let closedPool: WorkerPool | undefined
    const records = await pooledRun({
      root: runs.root,
      kind,
      count: 600,
      size: 1,
      startsPaused: true,
      during: async (run) => {
        closedPool = run.pool
        await areRunning(run, 50)
        await run.pool.resize(3)
        // The one that had everything for itself is replaced by one that shares, and finishes what it runs.
        await expect
          .poll(() => run.pool.workers().map(({ id, state, restarts: count }) => `${id} ${state} ${count}`))
          .toEqual(['1 draining 0', '1 ready 1', '2 ready 0', '3 ready 0'])
        await expect(run.pool.restart()).rejects.toMatchObject({ code: 'overloaded' })
        // Nobody waits for those that are too many.
        await run.pool.resize(1)
        run.open()
        await expect.poll(() => run.pool.workers().map(({ id }) => id)).toEqual([1])
        for (const size of [0, 1.5, most + 1]) {
          const message = expect.stringContaining(`1 to ${most} workers, not ${size}`) as string
          await expect(run.pool.resize(size)).rejects.toMatchObject({ code: 'config_invalid', message })
        }
      },
    })
    expect(countOutcomes(records)).toEqual({ completed: 600 })
    expect(new Set(records.map(({ attempt }) => attempt))).toEqual(new Set([1]))
    expectOneOutcomeEach(runs.root, records, 600)
    // The largest size is checked without starting so many: only the end of the pool is in its way.
    await expect(closedPool?.resize(most)).rejects.toMatchObject({ code: 'closed' })
  })

  test.each([
    ['old', { maxAgeMs: 500 }],
    ['large', { maxMemoryBytes: 1 }],
  ])('a worker that is too %s is replaced', async (_, supervision) => {
    await using runs = await temporaryRuns()
    const records = await pooledRun({
      root: runs.root,
      kind,
      count: 200,
      concurrency: 20,
      options: { ms: 200 },
      supervision,
      during: (run) => expect.poll(() => restarts(run)).toBeGreaterThan(1),
    })
    expect(countOutcomes(records)).toEqual({ completed: 200 })
    expectOneOutcomeEach(runs.root, records, 200)
  })

  test('a cancelled rollout ends on its worker at once, and the others continue', async () => {
    await using runs = await temporaryRuns()
    const records = await pooledRun({
      root: runs.root,
      kind,
      count: 2,
      size: 1,
      isModelHung: true,
      during: async ({ pool, scheduler, records: settled }) => {
        const inFlight = (): number | undefined => pool.models()[0]?.inFlight
        await expect.poll(inFlight).toBe(2)
        expect(scheduler.cancel('0-0', cancelled)).toBe(true)
        // Its question to the model is given up.
        await expect.poll(inFlight).toBe(1)
        await expect.poll(() => settled.length).toBe(1)
        scheduler.cancel('1-0', cancelled)
      },
    })
    // A rollout that its worker did not end, after ten seconds of grace, has no conversation: nobody could say what it was.
    const asked = [{ role: 'user' }]
    expect(records).toMatchObject([
      { id: '0-0', outcome: 'cancelled', messages: asked },
      { id: '1-0', outcome: 'cancelled', messages: asked },
    ])
  })

  test('the heap limit of a worker is applied', async () => {
    await using runs = await temporaryRuns()
    await pooledRun({
      root: runs.root,
      kind,
      count: 1,
      size: 1,
      supervision: { heap: { maxOldGenerationMb: 200, maxYoungGenerationMb: 24 } },
      during: async (run) => {
        await expect.poll(() => run.places().map(({ heapMb }) => heapMb)).toEqual([224])
      },
    })
  })

  test('a rollout that is cancelled while its worker is blocked is recorded as cancelled', async () => {
    await using runs = await temporaryRuns()
    const records = await pooledRun({
      root: runs.root,
      kind,
      count: 1,
      size: 1,
      options: { every: 1, mishap: 'endless' },
      supervision: { silentAfterMs: 500, replaceAfterMs: 10_000 },
      during: async (run) => {
        await expect.poll(() => run.pool.workers()[0]?.state).toBe('silent')
        expect(run.scheduler.cancel('0-0', cancelled)).toBe(true)
      },
    })
    expect(records).toMatchObject([{ outcome: 'cancelled', attempt: 1 }])
    expectOneOutcomeEach(runs.root, records, 1)
  })

  test('the run fails with an error if no new worker can be started', async () => {
    await using runs = await temporaryRuns()
    const failed = pooledRun({
      root: runs.root,
      environment: 'workers/refusing',
      kind,
      count: 50,
      size: 1,
      concurrency: 4,
      during: () => {
        process.env[refusal] = 'yes'
        return Promise.resolve()
      },
    })
    using _allowed = { [Symbol.dispose]: () => void delete process.env[refusal] }
    await expect(failed).rejects.toThrow(
      /no worker can be started.*the licence has expired.*run the same command again/,
    )
  })
})

test.each(['thread', 'process'] as const)(
  'a module that never finishes loading in a %s is named, with the position',
  async (kind) => {
    process.env[home] = `${process.pid}/${threadId}`
    using _anywhere = { [Symbol.dispose]: () => void delete process.env[home] }
    let failure = ''
    // A machine that stands still has not come to it in a short time.
    for (const startTimeoutMs of [2_000, 10_000, 60_000]) {
      await using runs = await temporaryRuns()
      const options = { root: runs.root, kind, count: 1, size: 1, environment: 'workers/looping' }
      failure = await pooledRun({ ...options, supervision: { startTimeoutMs } }).then(String, String)
      expect(failure).toMatch(/not ready after \d+ ms/)
      if (kind === 'process' || failure.includes('loopForEver')) break
    }
    // A process cannot be looked into: its module is named.
    const named = kind === 'thread' ? /: it is in loopForEver \(.*looping\.ts:\d+\)/ : /looping\.ts/
    expect(failure).toMatch(named)
  },
)
