import { expect, test } from 'vitest'
import { PuppetWorker } from './_testing/puppet-worker.ts'
import { maxIsolated, IsolatedWorkers } from './_isolated-workers.ts'
import type { PoolWorker } from './pool-worker.ts'

test('a worker that is given back while it starts is ended, and there is no room for another until then', async () => {
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
  await expect.poll(() => puppet.heard).toContainEqual({ kind: 'close' })
  puppet.exit('it was told to')
  await Promise.all(givenBack)
  expect(puppet.worker.isGone).toBe(true)
  expect(changes).toHaveLength(maxIsolated)
  expect(isolated.take(maxIsolated)).toBeDefined()
})

test('a worker that cannot be started leaves room for another', async () => {
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
