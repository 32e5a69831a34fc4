import { expect, test } from 'vitest'
import { descriptorBudget } from '../../http/descriptor-budget.ts'
import { HttpBackend, resolveModelConfig, type ModelConfig } from '../../inference/index.ts'
import type { Backend } from '../../apis/backend.ts'
import { ModelSet } from './model-set.ts'

test('the backends of all models share the sockets that a single backend could use', async () => {
  const named = (name: string, backends: number): ModelConfig =>
    resolveModelConfig({
      model: {
        name,
        backends: Array.from({ length: backends }, (_, index) => ({ url: `http://127.0.0.1:${index + 1}/v1` })),
        maxConcurrency: 10_000_000,
      },
      env: {},
    })
  await using set = new ModelSet({
    configs: [named('a', 1), named('b', 2), named('c', 1)],
    env: {},
    onLimitChange: () => undefined,
  })
  const sockets = set.all().flatMap(({ backends }) => backends.filter((backend) => backend instanceof HttpBackend))
  expect(sockets).toHaveLength(4)
  const sum = sockets.reduce((total, { maxConnections }) => total + maxConnections, 0)
  expect(sum).toBeLessThanOrEqual(descriptorBudget())
  expect(sum).toBeGreaterThan(descriptorBudget() / 2)
})

test('a model set closes the backends it opened, not those it was given', async () => {
  const closed: string[] = []
  const given: Backend = {
    name: 'engine',
    send: () => Promise.reject(new Error('never asked')),
    [Symbol.asyncDispose]: async () => void closed.push('engine'),
  }
  const set = new ModelSet({
    configs: ['own', 'lent'].map((name) =>
      resolveModelConfig({ model: { name, backends: [{ url: 'http://127.0.0.1:1/v1' }] }, env: {} }),
    ),
    env: {},
    onLimitChange: () => undefined,
    backends: { lent: [given] },
  })
  const [own] = set.all().flatMap(({ backends }) => backends)
  await set.close()
  expect(closed).toEqual([])
  expect(own).toMatchObject({ isClosed: true })
})
