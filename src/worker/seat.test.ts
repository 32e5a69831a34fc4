import { expect, test } from 'vitest'
import { Seat } from './_seat.ts'
import { PuppetWorker } from './_testing/puppet-worker.ts'
import type { PoolWorker } from './pool-worker.ts'

test('a seat says that it is filled once its worker can be found there', async () => {
  await using puppet = new PuppetWorker()
  const found: (PoolWorker | undefined)[] = []
  const seat: Seat = new Seat(
    1,
    () => Promise.resolve(puppet.worker),
    () => found.push(seat.worker),
  )
  await seat.fill()
  expect(found).toEqual([puppet.worker])
})

test('one that is given up while it is being filled lets the worker go', async () => {
  await using puppet = new PuppetWorker()
  const started = Promise.withResolvers<PoolWorker>()
  const seat = new Seat(
    1,
    () => started.promise,
    () => {},
  )
  const filled = seat.fill()
  expect(seat.giveUp()).toBeUndefined()
  started.resolve(puppet.worker)
  puppet.exit('it was told to')
  await filled
  expect(seat.worker).toBeUndefined()
  expect(puppet.worker.isGone).toBe(true)
})
