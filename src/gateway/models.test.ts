import { expect, test } from 'vitest'
import { resolveModelConfig, type ModelConfig } from '../inference/index.ts'
import { GatewayModels } from './models.ts'

const model = (name: string, backend: object = {}): ModelConfig =>
  resolveModelConfig({ model: { name, backends: [{ url: 'https://b.invalid/v1', ...backend }] }, env: {} })

test('a model that cannot be opened keeps its old form, and the others change', async () => {
  const models = [model('torn'), model('gone')]
  await using open = await GatewayModels.open({ models, env: {}, onLimitChange: () => {} })
  const torn = open.find('torn')
  const next = [model('torn', { caFile: 'none.pem' }), model('never', { caFile: 'none.pem' }), model('new')]
  expect(() => open.offer({ models: next })).toThrow('none.pem cannot be read')
  expect([...open.all().keys()]).toEqual(['torn', 'new'])
  expect(open.find('torn').client).toBe(torn.client)
})

test('an unknown model is answered with the known models and the nearest name', async () => {
  const names = ['qwen3-8b', ...Array.from({ length: 40 }, (_, index) => `other-${index}`)]
  const models = names.map((name) => model(name))
  const aliases = { policy: 'qwen3-8b' }
  await using open = await GatewayModels.open({ models, env: {}, aliases, onLimitChange: () => {} })
  expect(() => open.find('qwen')).toThrow(
    'there is no model "qwen" here. Did you mean "qwen3-8b"? The models here: qwen3-8b, other-0, other-1, other-2, other-3, other-4, other-5, other-6, other-7, other-8 and 32 more (GET /v1/models lists all)',
  )
  open.offer({ models: [model('qwen3-8b')], awaited: 1 })
  expect(() => open.find('nothing-like-it')).toThrow('The models known so far: qwen3-8b and policy. ')
  open.offer({ models: [], awaited: 1 })
  expect(() => open.find('nothing-like-it')).toThrow('known yet. If the name')
})
