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

test('one that is given up while it is being filled lets the worker go', async () => {
  await using puppet = new PuppetWorker()
  const started = Promise.withResolvers<PoolWorker>()
  const slot = new WorkerSlot(
    1,
    () => started.promise,
    () => {},
  )
  const filled = slot.fill()
  expect(slot.giveUp()).toBeUndefined()
  started.resolve(puppet.worker)
  puppet.exit('it was told to')
  await filled
  expect(slot.worker).toBeUndefined()
  expect(puppet.worker.isGone).toBe(true)
})
