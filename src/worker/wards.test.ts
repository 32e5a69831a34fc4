import { expect, test } from 'vitest'
import { PuppetWorker } from './_testing/puppet-worker.ts'
import { maxWards, Wards } from './_wards.ts'
import type { PoolWorker } from './pool-worker.ts'

test('a ward that is left while its worker starts ends that worker, and has no room until then', async () => {
  await using puppet = new PuppetWorker()
  const started = Promise.withResolvers<PoolWorker>()
  const changes: string[] = []
  const wards = new Wards(
    () => started.promise,
    () => changes.push('room'),
  )
  const entered = Array.from({ length: maxWards }, (_, cohort) => wards.enter(cohort))
  expect(wards.enter(maxWards)).toBeUndefined()
  const left = entered.flatMap((ward) => (ward ? [wards.leave(ward)] : []))
  expect(wards.enter(maxWards), 'nothing is gone yet').toBeUndefined()
  started.resolve(puppet.worker)
  await expect.poll(() => puppet.heard).toContainEqual({ kind: 'close' })
  puppet.exit('it was told to')
  await Promise.all(left)
  expect(puppet.worker.isGone).toBe(true)
  expect(changes).toHaveLength(maxWards)
  expect(wards.enter(maxWards)).toBeDefined()
})

test('a ward whose worker cannot be started is given back', async () => {
  const wards = new Wards(
    () => Promise.reject(new Error('no')),
    () => {},
  )
  for (let cohort = 0; cohort < 2 * maxWards; cohort += 1) {
    const ward = wards.enter(cohort)
    await expect(ward?.worker).rejects.toThrow('no')
    if (ward) await wards.leave(ward)
  }
})
