import { expect, test } from 'vitest'
import { resolveModelConfig, type ModelConfig } from '../../inference/index.ts'
import { SimulatorServer } from '../../simulator/index.ts'
import { Reachability } from './_reachability.ts'

const modelAt = (url: string, more: object = {}): ModelConfig =>
  resolveModelConfig({ model: { name: 'm', backends: [{ url, ...more }] }, env: {} })

test('a backend that answers requests, or that must not be polled, is not asked', async () => {
  const nowhere = modelAt('http://127.0.0.1:9/v1')
  const active: string[] = []
  const isActive = (url: string): boolean => active.includes(url)
  await using reachability = new Reachability([nowhere], {}, { isActive })
  expect(await reachability.any()).toBe(false)
  active.push('http://127.0.0.1:9/v1')
  expect(await reachability.any()).toBe(true)
  await using unasked = new Reachability([nowhere], {}, { polls: false })
  expect(await unasked.any()).toBe(true)
  await using nobody = new Reachability([], {}, { polls: false })
  expect(await nobody.any()).toBe(false)
})

test('backends that cannot be opened leave those that there are', async () => {
  await using backend = await SimulatorServer.start({})
  await using reachability = new Reachability([modelAt(backend.url)], {})
  expect(await reachability.any()).toBe(true)
  const broken = modelAt('https://b.invalid/v1', { caFile: 'none.pem' })
  expect(() => reachability.watch([broken])).toThrow('none.pem cannot be read')
  expect([reachability.count, await reachability.any()]).toEqual([1, true])
  // Of others there is nobody.
  reachability.watch([modelAt('http://127.0.0.1:9/v1')])
  expect([reachability.count, await reachability.any()]).toEqual([1, false])
})
