import { expect, test } from 'vitest'
import { resolveModelConfig, type ModelConfig } from '../inference/index.ts'
import { GatewayModels } from './gateway-models.ts'

const model = (name: string, backend: object = {}): ModelConfig =>
  resolveModelConfig({ model: { name, backends: [{ url: 'https://b.invalid/v1', ...backend }] }, env: {} })

test('a model that cannot be opened as it is offered stays as it was, and the others change', async () => {
  const models = [model('torn'), model('gone')]
  await using open = new GatewayModels({ models, env: {}, onLimitChange: () => {} })
  const torn = open.find('torn')
  const next = [model('torn', { caFile: 'none.pem' }), model('never', { caFile: 'none.pem' }), model('new')]
  expect(() => open.offer({ models: next })).toThrow('none.pem cannot be read')
  expect([...open.all().keys()]).toEqual(['torn', 'new'])
  expect(open.find('torn').client).toBe(torn.client)
})
