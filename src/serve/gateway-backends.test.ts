import { expect, test } from 'vitest'
import { SimulatorServer } from '../simulator/index.ts'
import { findModels, type FindModelsOptions } from './gateway-backends.ts'

const nobody = 'http://127.0.0.1:9/v1'

function find(options: Partial<FindModelsOptions>): ReturnType<typeof findModels> {
  return findModels({ backends: [], env: {}, signal: new AbortController().signal, ...options })
}

test('without a name every listed model is served, by all who list it', async () => {
  await using both = await SimulatorServer.start({ models: 'a,b' })
  await using one = await SimulatorServer.start({ models: 'b' })
  const { models, facts, findings } = await find({ backends: [both.url, one.url] })
  expect(models).toMatchObject([
    { name: 'a', api: 'chat', backends: [{ url: both.url }], maxConcurrency: 1024 },
    { name: 'b', api: 'chat', backends: [{ url: both.url }, { url: one.url }] },
  ])
  expect(facts).toMatchObject({ a: { capturesTokens: true }, b: { capturesTokens: true } })
  expect(findings).toHaveLength(2)
})

test('a name is that of all backends, also of one that cannot be reached now', async () => {
  await using simulator = await SimulatorServer.start({})
  const { models, findings } = await find({ backends: [nobody, simulator.url], model: 'policy' })
  expect(models).toMatchObject([{ name: 'policy', backends: [{ url: nobody }, { url: simulator.url }] }])
  expect(findings.map(({ problem }) => problem?.code)).toEqual(['model_connect', undefined])
})

test('the built-in simulator needs nothing, and is enough', async () => {
  expect(await find({ backends: ['sim'], model: 'mine' })).toMatchObject({ models: [{ name: 'mine', simulator: {} }] })
  expect(await find({ backends: ['sim', nobody], model: 'mine' })).toMatchObject({
    models: [{ name: 'sim' }, { name: 'mine', backends: [{ url: nobody }] }],
    findings: [{ problem: { code: 'model_connect' } }],
  })
})

test('models of the file keep what was said of them', async () => {
  await using simulator = await SimulatorServer.start({ models: 'up' })
  const policy = { upstreamName: 'up', backends: [{ url: simulator.url }], maxConcurrency: 7 }
  const { models, facts } = await find({ models: { policy } })
  expect(models).toMatchObject([{ name: 'policy', upstreamName: 'up', maxConcurrency: 7 }])
  expect(facts['policy']).toMatchObject({ capturesTokens: true })
})

test('nothing to serve, nobody who answers and two of one name are refused', async () => {
  await expect(find({})).rejects.toMatchObject({ code: 'usage' })
  await expect(find({ backends: [nobody] })).rejects.toMatchObject({ code: 'model_connect' })
  await expect(find({ backends: [nobody], model: 'm' })).rejects.toMatchObject({ code: 'model_connect' })
  await expect(find({ backends: ['sim'], models: { sim: { simulator: {} } } })).rejects.toMatchObject({
    code: 'config_invalid',
    message: expect.stringContaining('two models are called sim') as string,
  })
})
