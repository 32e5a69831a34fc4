import { setImmediate as nextTurn } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { WorkerSlot } from './_worker-slot.ts'
import { PuppetWorker } from './_testing/puppet-worker.ts'
import type { PoolWorker } from './pool-worker.ts'

test('a slot says that it is filled once its worker can be found there', async () => {
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

test('one that is given up while it is being filled tells the worker to end, and waits until it has', async () => {
  await using puppet = new PuppetWorker()
  const started = Promise.withResolvers<PoolWorker>()
  const slot = new WorkerSlot(
    1,
    () => started.promise,
    () => expect.unreachable('the slot has no worker'),
  )
  let isFilled = false
  const filled = slot.fill().then(() => (isFilled = true))
  expect(slot.giveUp()).toBeUndefined()
  started.resolve(puppet.worker)
  await expect.poll(() => puppet.heard).toContainEqual({ kind: 'close' })
  await nextTurn()
  expect([puppet.worker.isGone, isFilled]).toEqual([false, false])
  puppet.exit('it was told to')
  await filled
  expect(slot.worker).toBeUndefined()
  expect(puppet.worker.isGone).toBe(true)
})

test('a worker that died since it was ready is not put into its slot: the next one is', async () => {
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

test('a slot is cleared of its own worker only', async () => {
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
