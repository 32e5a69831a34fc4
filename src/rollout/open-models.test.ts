import { expect, test } from 'vitest'
import { descriptorBudget, HttpBackend, resolveModelConfig, type ModelConfig } from '../inference/index.ts'
import { ModelSet } from './open-models.ts'

test('all backends of all models together have the sockets that one would have alone', async () => {
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
