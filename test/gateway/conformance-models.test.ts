import { expect, test } from 'vitest'
import { GatewayOverSimulator, modelName } from '../support/gateway/gateway-over-simulator.ts'

test('both clients list the models, by key and by url', async () => {
  await using gateway = await GatewayOverSimulator.start({
    simulator: { contextLength: 32_000 },
    models: { 'org/large:fast': { upstreamName: 'sim' } },
  })
  const session = await gateway.startSession()
  const names = [modelName, 'org/large:fast']
  for (const way of ['key', 'url'] as const) {
    const openai = []
    for await (const { id, object, created } of session.openai(way).models.list()) openai.push({ id, object, created })
    expect(openai).toEqual(names.map((id) => ({ id, object: 'model', created: 0 })))
    const anthropic = []
    for await (const { id, type, max_input_tokens } of session.anthropic(way).models.list()) {
      anthropic.push({ id, type, max_input_tokens })
    }
    expect(anthropic).toEqual(names.map((id) => ({ id, type: 'model', max_input_tokens: 32_000 })))
  }
})

test('both clients retrieve one model', async () => {
  await using gateway = await GatewayOverSimulator.start({ models: { 'org/large:fast': { upstreamName: 'sim' } } })
  const session = await gateway.startSession()
  for (const id of [modelName, 'org/large:fast']) {
    expect(await session.openai().models.retrieve(id)).toMatchObject({ id, object: 'model' })
    expect(await session.anthropic('url').models.retrieve(id)).toMatchObject({ id, type: 'model' })
  }
  await expect(session.openai().models.retrieve('none')).rejects.toMatchObject({ status: 404 })
  await expect(session.anthropic().models.retrieve('none')).rejects.toMatchObject({ status: 404 })
})
