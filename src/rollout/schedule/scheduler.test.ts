import { expect, test, vi } from 'vitest'
import { newRun, nodeEntry, temporaryFolder } from '../../../test/support/store/fixtures.ts'
import type { Executor, RolloutJob } from './executor.ts'
import { MillraceError } from '../../errors/index.ts'
import type { RolloutRecord } from '../../schema/index.ts'
import { RunStore } from '../../store/index.ts'
import { recordWithoutRun } from '../result/record.ts'
import { Scheduler, type PlannedRollout, type SchedulerOptions } from './scheduler.ts'

const labels = { environment: 'scripted', model: 'none' }

/** A place where only one thing can be done. */
function executorThat(run: Executor['run']): Executor {
  const refuse = (): Promise<never> => Promise.reject(new Error('not asked for'))
  return {
    run,
    scoreGroup: refuse,
    preflight: refuse,
    takesWork: true,
    models: () => [],
    servers: () => [],
    workers: () => [],
    offload: () => [],
    [Symbol.asyncDispose]: () => Promise.resolve(),
  }
}

/** What all these schedulers have in common. */
function oneAtATime({ journal, reader }: RunStore): Omit<SchedulerOptions, 'executor'> {
  return {
    labels,
    journal,
    reader,
    concurrency: 1,
    retries: 0,
    group: { size: 1, policy: 'keep', isScored: false },
    seedOf: () => 1,
    onSettled: () => {},
    onAttemptEnd: () => {},
    onAdmissionEnd: () => {},
  }
}

function failed({ id, attempt, sample, task: { index } }: RolloutJob): RolloutRecord {
  const error = new MillraceError('internal', 'it answered nothing')
  const task = { index, id: String(index) }
  return recordWithoutRun({ ...labels, id, attempt, sample, task, outcome: 'model_error', error })
}

test('a rollout that is cancelled while its attempt fails is not repeated', async () => {
  using folder = temporaryFolder()
  await using store = await RunStore.open({ folder: folder.path, create: newRun() })
  const attempts: number[] = []
  const settled: RolloutRecord[] = []
  const scheduler: Scheduler = new Scheduler({
    ...oneAtATime(store),
    executor: executorThat((job) => {
      attempts.push(job.attempt)
      const { id, attempt } = job
      store.journal.append({ kind: 'attempt-start', rollout: id, attempt, parent: null, task: 0, sample: 0, at: 1 })
      if (attempt === 2) scheduler.cancel(id, new MillraceError('cancelled', 'enough'))
      return Promise.resolve({ kind: 'ended', record: failed(job), leaf: null })
    }),
    retries: 5,
    onSettled: (record) => void settled.push(record),
  })
  const task = { index: 0, id: '0', data: {} }
  async function* plans(): AsyncGenerator<PlannedRollout, void, void> {
    yield { kind: 'attempt', id: '0-0', sample: 0, task, attempt: 1 }
  }
  expect(await scheduler.run(plans())).toBe(true)
  expect(attempts).toEqual([1, 2])
  expect(settled).toMatchObject([{ id: '0-0', attempt: 2, outcome: 'model_error' }])
  expect(scheduler.active).toBe(0)
})

test.each([true, false])(
  'a result that a client waits for is committed at once, any other with those of others: %s',
  async (isAwaited) => {
    using folder = temporaryFolder()
    await using store = await RunStore.open({ folder: folder.path, create: newRun() })
    const atOnce = vi.spyOn(store.journal, 'durable')
    const settled: RolloutRecord[] = []
    const scheduler = new Scheduler({
      ...oneAtATime(store),
      executor: executorThat((job) => {
        const { id, attempt } = job
        store.journal.append({ kind: 'attempt-start', rollout: id, attempt, parent: null, task: 0, sample: 0, at: 1 })
        return Promise.resolve({ kind: 'ended', record: failed(job), leaf: null })
      }),
      isAwaited,
      onSettled: (record) => {
        expect(atOnce).toHaveBeenCalledTimes(isAwaited ? 1 : 0)
        settled.push(record)
      },
    })
    async function* plans(): AsyncGenerator<PlannedRollout, void, void> {
      yield { kind: 'attempt', id: '0-0', sample: 0, task: { index: 0, id: '0', data: {} }, attempt: 1 }
    }
    await scheduler.run(plans())
    expect(settled).toHaveLength(1)
  },
)

test('a waiting source is notified when no rollout starts any more', async () => {
  using folder = temporaryFolder()
  await using store = await RunStore.open({ folder: folder.path, create: newRun() })
  const admission = Promise.withResolvers<void>()
  const scheduler = new Scheduler({
    ...oneAtATime(store),
    executor: executorThat(() => Promise.reject(new MillraceError('worker_lost', 'all of them'))),
    onAdmissionEnd: admission.resolve,
  })
  async function* plans(): AsyncGenerator<PlannedRollout, void, void> {
    yield { kind: 'attempt', id: '0-0', sample: 0, task: { index: 0, id: '0', data: {} }, attempt: 1 }
    await admission.promise
  }
  await expect(scheduler.run(plans())).rejects.toMatchObject({ code: 'worker_lost' })
})

test.each([
  ['what nobody had thought of costs its rollout', new TypeError('undefined is not a function'), 'internal'],
  ['what cannot get to a worker costs its rollout', new MillraceError('env_invalid', 'not cloneable'), 'env_invalid'],
])('%s, and the others continue', async (_, thrown, code) => {
  using folder = temporaryFolder()
  await using store = await RunStore.open({ folder: folder.path, create: newRun() })
  const settled: RolloutRecord[] = []
  const scheduler = new Scheduler({
    ...oneAtATime(store),
    executor: executorThat((job) => {
      if (job.id === '0-0') return Promise.reject(thrown)
      const { id, attempt } = job
      store.journal.append({ kind: 'attempt-start', rollout: id, attempt, parent: null, task: 1, sample: 0, at: 1 })
      return Promise.resolve({ kind: 'ended', record: failed(job), leaf: null })
    }),
    onSettled: (record) => void settled.push(record),
  })
  async function* plans(): AsyncGenerator<PlannedRollout, void, void> {
    for (const index of [0, 1]) {
      const task = { index, id: String(index), data: {} }
      yield { kind: 'attempt', id: `${index}-0`, sample: 0, task, attempt: 1 }
    }
  }
  expect(await scheduler.run(plans())).toBe(true)
  expect(settled).toMatchObject([
    { id: '0-0', outcome: 'env_error', error: { code } },
    { id: '1-0', outcome: 'model_error' },
  ])
})

test('a replacement for a failed group member gets the same prompt', async () => {
  using folder = temporaryFolder()
  await using store = await RunStore.open({ folder: folder.path, create: newRun() })
  // One that its own rules do not repeat.
  const spoilt = (job: RolloutJob): RolloutRecord => ({ ...failed(job), outcome: 'env_error' })
  const asked: RolloutJob[] = []
  const scheduler = new Scheduler({
    ...oneAtATime(store),
    executor: executorThat((job) => {
      const { id, attempt, sample } = job
      asked.push(job)
      store.journal.append({ kind: 'attempt-start', rollout: id, attempt, parent: null, task: 0, sample, at: 1 })
      return Promise.resolve({ kind: 'ended', record: spoilt(job), leaf: null })
    }),
    group: { size: 2, policy: 'replace', isScored: false },
    retries: 1,
  })
  const task = { index: 0, id: '0', data: {} }
  const opening = { prompt: 'another one' }
  const resumed = { purpose: 'resume', sessions: {} } as const
  async function* plans(): AsyncGenerator<PlannedRollout, void, void> {
    const held = { record: spoilt({ id: '0-0', attempt: 1, sample: 0, task, seed: 1 }), leaf: null }
    yield { kind: 'held', held, task, sampling: { seed: 10 } }
    yield { kind: 'attempt', id: '0-1', sample: 1, task, attempt: 1, sampling: { seed: 11 }, opening, resumed }
  }
  expect(await scheduler.run(plans())).toBe(true)
  expect(asked).toEqual([
    { id: '0-1', sample: 1, task, attempt: 1, seed: 1, sampling: { seed: 11 }, opening, recording: resumed },
    { id: '0-0', sample: 0, task, attempt: 2, seed: 1, sampling: { seed: 10 } },
    { id: '0-1', sample: 1, task, attempt: 2, seed: 1, sampling: { seed: 11 }, opening },
  ])
})

/** Asks its model once, for a dollar, and leaves no record. */
const unrecordedEnds: Record<string, (attempt: number, cancel: () => void) => ReturnType<Executor['run']>> = {
  env_error: () => Promise.reject(new Error('nobody had thought of it')),
  agent_error: () => Promise.resolve({ kind: 'diverged', why: 'it says so itself' }),
  poisoned: (attempt) => {
    return Promise.resolve({ kind: 'lost', why: 'it died', disposition: attempt === 1 ? 'again' : 'poisoned' })
  },
  cancelled: (_attempt, cancel) => {
    cancel()
    return Promise.reject(new Error('told to end'))
  },
}

test.each(Object.entries(unrecordedEnds))('the usage before %s is in the record', async (outcome, end) => {
  using folder = temporaryFolder()
  await using store = await RunStore.open({ folder: folder.path, create: newRun() })
  const usage = { calls: 1, input: 2, cachedInput: 0, output: 3, reasoning: 0 }
  const ended: unknown[] = []
  const settled: RolloutRecord[] = []
  const scheduler: Scheduler = new Scheduler({
    ...oneAtATime(store),
    executor: executorThat(({ id, attempt }) => {
      store.journal.append({ kind: 'attempt-start', rollout: id, attempt, parent: null, task: 0, sample: 0, at: 1 })
      const meta = JSON.stringify({ call: { usage, cost: 1 } })
      store.journal.append(nodeEntry({ rollout: id, attempt, seq: 0, meta }))
      return end(attempt, () => scheduler.cancel(id, new MillraceError('cancelled', 'enough')))
    }),
    onSettled: (record) => void settled.push(record),
    onAttemptEnd: ({ attempt, cost }) => void ended.push([attempt, cost]),
  })
  async function* plans(): AsyncGenerator<PlannedRollout, void, void> {
    yield { kind: 'attempt', id: '0-0', sample: 0, task: { index: 0, id: '0', data: {} }, attempt: 1 }
  }
  expect(await scheduler.run(plans())).toBe(true)
  expect(settled).toMatchObject([{ outcome, usage, cost: 1 }])
  // One that is lost and starts over is paid for as well.
  const attempts = outcome === 'poisoned' ? [1, 2] : [1]
  expect(ended).toEqual(attempts.map((attempt) => [attempt, 1]))
})
