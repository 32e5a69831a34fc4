import { setImmediate as nextTurn } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { PuppetWorker } from '../../test/support/worker/puppet-worker.ts'
import { chooseWorker, IsolatedWorkers, maxIsolated, WorkerSlot } from './slots.ts'
import type { PoolWorker } from './worker.ts'

interface Parts {
  readonly load?: number
  readonly lagMs?: number
  readonly takesWork?: boolean
  readonly tasks?: readonly number[]
}

const worker = ({ load = 0, lagMs = 0, takesWork = true, tasks = [] }: Parts) => {
  return { load, lagMs, takesWork, worksOn: (task: number) => tasks.includes(task) }
}

test.each<[string, readonly Parts[], number | undefined]>([
  ['nobody', [], undefined],
  ['nobody if none takes work', [{ takesWork: false }], undefined],
  ['the least busy', [{ load: 3 }, { load: 1 }, { load: 2 }], 1],
  ['one that keeps up before one that lags', [{ load: 0, lagMs: 900 }, { load: 50 }], 1],
  [
    'the least busy if all lag',
    [
      { load: 9, lagMs: 900 },
      { load: 5, lagMs: 900 },
    ],
    1,
  ],
  ['the one that is at the same task', [{ load: 0 }, { load: 3, tasks: [7] }], 1],
  ['not if that one is clearly busier', [{ load: 0 }, { load: 5, tasks: [7] }], 0],
  ['clearly means a quarter where many run', [{ load: 100 }, { load: 120, tasks: [7] }], 1],
  ['not if that one lags', [{ load: 0 }, { load: 1, lagMs: 900, tasks: [7] }], 0],
  ['not if that one is silent', [{ load: 9 }, { load: 1, takesWork: false, tasks: [7] }], 0],
])('chooses %s', (_, parts, index) => {
  const workers = parts.map(worker)
  expect(chooseWorker(workers, 7)).toBe(index === undefined ? undefined : workers[index])
})

test('a worker given back during its start is ended, and takes up its place until then', async () => {
  await using puppet = new PuppetWorker()
  const started = Promise.withResolvers<PoolWorker>()
  const changes: string[] = []
  const isolated = new IsolatedWorkers(
    () => started.promise,
    () => changes.push('room'),
  )
  const taken = Array.from({ length: maxIsolated }, (_, cohort) => isolated.take(cohort))
  expect(isolated.take(maxIsolated)).toBeUndefined()
  const givenBack = taken.flatMap((each) => (each ? [isolated.giveBack(each)] : []))
  expect(isolated.take(maxIsolated), 'nothing is gone yet').toBeUndefined()
  started.resolve(puppet.worker)
  await expect.poll(() => puppet.received).toContainEqual({ kind: 'close' })
  puppet.exit('it was told to')
  await Promise.all(givenBack)
  expect(puppet.worker.isGone).toBe(true)
  expect(changes).toHaveLength(maxIsolated)
  expect(isolated.take(maxIsolated)).toBeDefined()
})

test('a worker that fails to start frees its place', async () => {
  const isolated = new IsolatedWorkers(
    () => Promise.reject(new Error('no')),
    () => {},
  )
  for (let cohort = 0; cohort < 2 * maxIsolated; cohort += 1) {
    const taken = isolated.take(cohort)
    await expect(taken?.worker).rejects.toThrow('no')
    if (taken) await isolated.giveBack(taken)
  }
})

test('a slot reports that it is filled once its worker can be found there', async () => {
  await using puppet = new PuppetWorker()
  const found: (PoolWorker | undefined)[] = []
  const slot: WorkerSlot = new WorkerSlot(
    1,
    () => Promise.resolve(puppet.worker),
    () => found.push(slot.worker),
  )
  await slot.fill()
  expect(found).toEqual([puppet.worker])
})

test('a slot abandoned during its start ends the worker and waits for that end', async () => {
  await using puppet = new PuppetWorker()
  const started = Promise.withResolvers<PoolWorker>()
  const slot = new WorkerSlot(
    1,
    () => started.promise,
    () => expect.unreachable('the slot has no worker'),
  )
  let isFilled = false
  const filled = slot.fill().then(() => (isFilled = true))
  expect(slot.release()).toBeUndefined()
  started.resolve(puppet.worker)
  await expect.poll(() => puppet.received).toContainEqual({ kind: 'close' })
  await nextTurn()
  expect([puppet.worker.isGone, isFilled]).toEqual([false, false])
  puppet.exit('it was told to')
  await filled
  expect(slot.worker).toBeUndefined()
  expect(puppet.worker.isGone).toBe(true)
})

test('a worker that died before it was placed is replaced by the next one', async () => {
  await using dead = new PuppetWorker()
  await using next = new PuppetWorker()
  dead.exit('it exited with code 1')
  await dead.worker.exited
  const starts: [number, number][] = []
  const workers = [dead.worker, next.worker]
  const slot = new WorkerSlot(
    7,
    async (id, restarts) => {
      starts.push([id, restarts])
      return workers.shift() ?? expect.unreachable('it is started twice')
    },
    () => {},
  )
  await Promise.all([slot.fill(), slot.fill()])
  expect(slot.worker).toBe(next.worker)
  expect(starts, 'callers share one start; each start has its number').toEqual([
    [7, 0],
    [7, 1],
  ])
})

test('a slot is cleared only by its own worker', async () => {
  await using first = new PuppetWorker()
  await using second = new PuppetWorker()
  const workers = [first.worker, second.worker]
  const slot = new WorkerSlot(
    1,
    async () => workers.shift() ?? expect.unreachable('there are two'),
    () => {},
  )
  await slot.fill()
  expect(await slot.renew()).toBe(first.worker)
  expect(slot.clear(first.worker), 'it was replaced').toBe(false)
  expect(slot.worker).toBe(second.worker)
  expect(slot.clear(second.worker)).toBe(true)
  expect(slot.worker).toBeUndefined()
})
