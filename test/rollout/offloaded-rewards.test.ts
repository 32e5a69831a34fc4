import { existsSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { threadId } from 'node:worker_threads'
import { evaluate } from 'millrace'
import { ScriptedBackend, temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { activeResources, leftSince } from '../support/kit/active-resources.ts'
import { runningThreads, threadsSince } from '../support/kit/running-threads.ts'
import { RewardPool, type OffloadedJob } from '../../src/rollout/reward/reward-pool.ts'
import { loadEnvironment } from '../../src/env/index.ts'
import { resolveModelConfig } from '../../src/inference/index.ts'
import { StopClock } from '../../src/kit/index.ts'
import { InlineExecutor, type InlineExecutorOptions } from '../../src/rollout/index.ts'
import { defaultLimits, type RolloutRecord } from '../../src/schema/index.ts'
import { RunStore } from '../../src/store/index.ts'

const specifier = pathToFileURL(join(import.meta.dirname, '../fixtures/offloaded.ts')).href
const never = new AbortController().signal

interface OffloadedTask {
  readonly how: string
  readonly mark?: string
}

async function openExecutor(options: Partial<InlineExecutorOptions> = {}) {
  const runs = await temporaryRuns()
  const create = { name: 'offloaded', configDigest: 'digest', config: {}, provenance: {} }
  const store = await RunStore.open({ folder: join(runs.root, 'offloaded'), create })
  const rawOptions = { bonus: 2 }
  const loaded = await loadEnvironment(specifier, rawOptions)
  const executor = new InlineExecutor({
    environment: loaded.environment,
    options: loaded.options,
    settings: {
      model: 'scripted',
      judge: 'scripted',
      asked: ['scripted'],
      judgeConcurrency: 1,
      limits: defaultLimits,
      sampling: {},
      captureTokens: false,
      sendSeed: false,
    },
    models: [
      resolveModelConfig({ model: { name: 'scripted', backends: [{ url: 'http://scripted.invalid' }] }, env: {} }),
    ],
    backends: { scripted: [new ScriptedBackend(() => 'scripted')] },
    env: {},
    journal: store.journal,
    module: { specifier, options: rawOptions },
    ...options,
  })
  return {
    executor,
    store,
    async run(task: OffloadedTask, signal = never): Promise<RolloutRecord> {
      const job = { id: 'one', attempt: 1, sample: 0, task: { index: 0, id: '0', data: task }, seed: 1 }
      const result = await executor.run(job, signal)
      if (result.kind !== 'ended') throw new Error(`it came to ${result.kind}`)
      return result.record
    },
    async [Symbol.asyncDispose]() {
      await executor.close()
      await store.close()
      await runs[Symbol.asyncDispose]()
    },
  }
}

/** A file that is there once a reward has started. */
async function markFile() {
  const folder = await mkdtemp(join(tmpdir(), 'millrace-offloaded-'))
  const file = join(folder, 'started')
  return {
    file,
    written: () => expect.poll(() => existsSync(file)).toBe(true),
    [Symbol.asyncDispose]: () => rm(folder, { recursive: true, force: true }),
  }
}

function heavyJob(
  task: unknown,
  parts: Partial<Omit<OffloadedJob, 'clock'>> = {},
): OffloadedJob & Disposable & { readonly clock: StopClock } {
  const clock = new StopClock({ limitMs: 600_000, onSpent: () => {} })
  const rollout = { id: 'one', attempt: 1, sample: 0, seed: 1 }
  return {
    component: 'judged',
    input: { task, rollout, messages: [], answer: '', outcome: 'completed', truncated: false, info: {} },
    timeoutMs: 60_000,
    clock,
    signal: never,
    ...parts,
    [Symbol.dispose]: () => clock.stop(),
  }
}

test('an offloaded reward runs on its own thread, with the options of the environment and plain data', async () => {
  await using offloaded = await openExecutor()
  const scored = await offloaded.run({ how: 'score' })
  expect(scored).toMatchObject({ outcome: 'completed', reward: 24, rewards: { judged: { score: 12, weight: 2 } } })
  expect((await offloaded.run({ how: 'see' })).rewards['judged']?.score).toBe(1)
  const where = await offloaded.run({ how: 'thread' })
  expect(where.metrics['here']).toBe(threadId)
  expect(where.rewards['judged']?.score).not.toBe(threadId)
  // Warm: the next one finds the same thread.
  expect((await offloaded.run({ how: 'thread' })).rewards).toEqual(where.rewards)
})

test('an endless reward is stopped at its limit and named; others are scored and its thread is replaced', async () => {
  await using offloaded = await openExecutor({ rewardThreads: 2 })
  const [endless, ...others] = await Promise.all(['spin', 'score', 'score'].map((how) => offloaded.run({ how })))
  expect(endless).toMatchObject({ outcome: 'reward_error', reward: null, error: { code: 'reward_failed' } })
  expect(endless?.error?.message).toMatch(
    /^reward "judged": it took longer than its 3000 ms and was stopped in countForEver \(.*offloaded\.ts:\d+\)/,
  )
  expect(others.map(({ reward }) => reward)).toEqual([24, 24])
  expect((await offloaded.run({ how: 'score' })).reward).toBe(24)
  expect(offloaded.executor.offload()).toContainEqual(expect.objectContaining({ name: 'reward', queued: 0 }))
})

test.each([
  ['hang', 'it took longer than its 3000 ms and was stopped;'],
  ['throw', /^reward "judged" threw Error at test\/fixtures\/offloaded\.ts:\d+: no such test$/],
  ['exit', 'the thread it ran on died: it exited with code 3'],
  ['stray', 'the thread it ran on died: nobody caught this'],
  ['stray-null', 'the thread it ran on died: null'],
  ['nothing', 'gave NaN'],
])('a reward that does "%s" fails alone', async (how, message) => {
  await using offloaded = await openExecutor({ rewardThreads: 1 })
  const failed = await offloaded.run({ how })
  expect(failed).toMatchObject({ outcome: 'reward_error', reward: null })
  expect(failed.error?.message).toContain('reward "judged"')
  expect(failed.error?.message).toMatch(message)
  expect((await offloaded.run({ how: 'score' })).reward).toBe(24)
})

test('a cancelled rollout ends its reward at once', async () => {
  await using offloaded = await openExecutor({ rewardThreads: 1 })
  await using started = await markFile()
  const stop = new AbortController()
  const pending = offloaded.run({ how: 'hang', mark: started.file }, stop.signal)
  await started.written()
  stop.abort()
  expect((await pending).outcome).toBe('cancelled')
  expect((await offloaded.run({ how: 'score' })).reward).toBe(24)
})

test('threads follow the load up to their limit, and waiting for a thread does not count as reward time', async () => {
  await using pool = new RewardPool({ specifier, options: {}, maxThreads: 2 })
  const stop = new AbortController()
  using hanging = heavyJob({ how: 'hang' }, { signal: stop.signal })
  const hung = [pool.score(hanging), pool.score(hanging)].map((each) => each.catch((error: unknown) => error))
  await expect.poll(() => pool.status()).toMatchObject({ threads: 2, running: 2, queued: 0 })
  using waiting = heavyJob({ how: 'score' })
  const scored = pool.score(waiting)
  expect(pool.status()).toMatchObject({ threads: 2, running: 2, queued: 1 })
  await expect.poll(() => waiting.clock.waitedMs).toBeGreaterThan(100)
  expect(waiting.clock.elapsedMs).toBeLessThan(waiting.clock.waitedMs)
  stop.abort()
  expect(await scored).toBe(10)
  expect(await Promise.all(hung)).toEqual([stop.signal.reason, stop.signal.reason])
  expect(pool.status().waitP99Ms).toBeGreaterThan(100)
})

test('a reward that is cancelled in the queue does not run', async () => {
  await using pool = new RewardPool({ specifier, options: {}, maxThreads: 1 })
  await using started = await markFile()
  const stop = new AbortController()
  using hanging = heavyJob({ how: 'hang' }, { signal: stop.signal })
  const hung = pool.score(hanging).catch(() => 'stopped')
  await expect.poll(() => pool.status().running).toBe(1)
  const leave = new AbortController()
  using leaving = heavyJob({ how: 'score', mark: started.file }, { signal: leave.signal })
  const left = pool.score(leaving)
  leave.abort(new Error('enough'))
  await expect(left).rejects.toThrow('enough')
  expect(pool.status().queued).toBe(0)
  stop.abort()
  expect(await hung).toBe('stopped')
  using last = heavyJob({ how: 'score' })
  expect(await pool.score(last)).toBe(10)
  expect(existsSync(started.file)).toBe(false)
})

test('a task that cannot be sent to another thread is refused with the reason', async () => {
  await using pool = new RewardPool({ specifier, options: {} })
  using job = heavyJob({ how: 'score', answer: () => 42 })
  await expect(pool.score(job)).rejects.toThrow(/cannot be sent to another thread: .*; tasks must be plain values/)
  using plain = heavyJob({ how: 'score' })
  expect(await pool.score(plain)).toBe(10)
})

test('an environment that fails to load on the thread fails the reward, and is loaded again for the next', async () => {
  const broken = pathToFileURL(join(import.meta.dirname, '../fixtures/throws-on-load.ts')).href
  await using pool = new RewardPool({ specifier: broken, options: {} })
  for (let round = 0; round < 2; round += 1) {
    using job = heavyJob({ how: 'score' })
    await expect(pool.score(job)).rejects.toMatchObject({ code: 'env_load_failed' })
  }
})

test('a thread that failed to load the environment is ended, whatever it left open', async () => {
  const before = activeResources()
  const busy = pathToFileURL(join(import.meta.dirname, '../fixtures/throws-while-busy.ts')).href
  await using pool = new RewardPool({ specifier: busy, options: {} })
  for (let round = 0; round < 3; round += 1) {
    using job = heavyJob({ how: 'score' })
    await expect(pool.score(job)).rejects.toMatchObject({ code: 'env_load_failed' })
  }
  expect(await leftSince(before)).toEqual([])
})

test('a thread that exits while it loads the environment fails the reward, and the next gets a new thread', async () => {
  const before = runningThreads()
  const ending = pathToFileURL(join(import.meta.dirname, '../fixtures/exits-on-load.ts')).href
  await using pool = new RewardPool({ specifier: ending, options: {} })
  for (let round = 0; round < 2; round += 1) {
    using job = heavyJob({ how: 'score' })
    await expect(pool.score(job)).rejects.toThrow('the thread it ran on died: it exited with code 4')
  }
  expect(threadsSince(before)).toBe(0)
})

test('closing a pool ends running rewards, also when closed twice, and leaves nothing behind', async () => {
  const before = { threads: runningThreads(), resources: activeResources() }
  {
    const pool = new RewardPool({ specifier, options: {}, maxThreads: 2 })
    await using started = await markFile()
    using spinning = heavyJob({ how: 'spin', mark: started.file })
    using waiting = heavyJob({ how: 'spin' })
    const jobs = [spinning, waiting, waiting]
    const scores = jobs.map((job) => pool.score(job).catch(() => 'gone'))
    await started.written()
    await Promise.all([pool.close(), pool.close()])
    expect(await Promise.all(scores)).toEqual(['gone', 'gone', 'gone'])
    await expect(pool.score(waiting)).rejects.toMatchObject({ code: 'closed' })
  }
  expect(threadsSince(before.threads)).toBe(0)
  expect(await leftSince(before.resources)).toEqual([])
})

test('an environment given as an object cannot have offloaded rewards', async () => {
  await using runs = await temporaryRuns()
  const { environment } = await loadEnvironment(specifier)
  const evaluation = evaluate({ environment, model: 'sim', run: { root: runs.root } })
  await expect(evaluation.summary()).rejects.toThrow(
    /offloaded has an offloaded reward.* give the environment as a module/,
  )
})

test('a reward that blocks the loop is recorded by name, once', async () => {
  await using offloaded = await openExecutor()
  for (let round = 0; round < 3; round += 1) {
    expect((await offloaded.run({ how: 'spin-here' })).outcome).toBe('completed')
  }
  await offloaded.store.journal.durable()
  const [first, ...more] = Array.from(offloaded.store.reader.events('loop-blocked'), ({ data }) => data)
  expect(first).toMatchObject({ environment: 'offloaded', component: 'here', blockedBy: 'reward "here" of offloaded' })
  expect(first).toHaveProperty('lagMs', expect.any(Number))
  // More only where the machine made one of them twice as slow.
  expect(more.length).toBeLessThan(2)
})

test.each([undefined, 1])('an evaluation uses offloaded rewards, with workers: %s', async (workers) => {
  await using runs = await temporaryRuns()
  const evaluation = evaluate({
    environment: join(import.meta.dirname, '../fixtures/offloaded.ts'),
    options: { bonus: 1 },
    model: 'sim',
    ...(workers && { workers }),
    run: { root: runs.root },
  })
  expect(await Array.fromAsync(evaluation)).toMatchObject([{ outcome: 'completed', reward: 22 }])
})

test('an endless reward is named on a worker', async () => {
  await using runs = await temporaryRuns()
  const evaluation = evaluate({
    environment: join(import.meta.dirname, '../fixtures/offloaded.ts'),
    options: { how: 'spin' },
    model: 'sim',
    workers: 1,
    run: { root: runs.root },
  })
  const message = expect.stringMatching(/ and was stopped in countForEver \(.*offloaded\.ts:\d+\);/)
  expect(await Array.fromAsync(evaluation)).toMatchObject([{ outcome: 'reward_error', error: { message } }])
})
