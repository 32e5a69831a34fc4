import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { describe, expect, test } from 'vitest'
import { LateServer } from '../../../test/support/inference/late-server.ts'
import type { ModelConfig } from '../../inference/index.ts'
import { SimulatorServer } from '../../simulator/index.ts'
import { findModels } from './backend-directory.ts'
import type { FindModelsOptions } from './backend-models.ts'

const nobody = 'http://127.0.0.1:9/v1'

function find(options: Partial<FindModelsOptions>): ReturnType<typeof findModels> {
  return findModels({ backends: [], env: {}, signal: new AbortController().signal, ...options })
}

test('without --model every listed model is served, by all backends that list it', async () => {
  await using both = await SimulatorServer.start({ models: 'a,b' })
  await using one = await SimulatorServer.start({ models: 'b' })
  const { models, facts, probeResults } = await find({ backends: [both.url, one.url] })
  expect(models).toMatchObject([
    { name: 'a', api: 'chat', backends: [{ url: both.url }], maxConcurrency: 1024 },
    { name: 'b', api: 'chat', backends: [{ url: both.url }, { url: one.url }] },
  ])
  expect(facts).toMatchObject({ a: { capturesTokens: true }, b: { capturesTokens: true } })
  expect(probeResults).toHaveLength(2)
})

test('with --model all backends serve that model, also one that is unreachable', async () => {
  await using simulator = await SimulatorServer.start({})
  const { models, probeResults } = await find({ backends: [nobody, simulator.url], model: 'policy' })
  expect(models).toMatchObject([{ name: 'policy', backends: [{ url: nobody }, { url: simulator.url }] }])
  expect(probeResults.map(({ problem }) => problem?.code)).toEqual(['model_connect', undefined])
})

test('an unreachable backend is awaited, even if its models are unknown', async () => {
  await using simulator = await SimulatorServer.start({})
  const { models, directory } = await find({ backends: [nobody, simulator.url] })
  expect(models).toMatchObject([{ name: 'sim', backends: [{ url: simulator.url }] }])
  expect(directory).toMatchObject({ awaited: [0], unlisted: 1 })
  expect(await find({ backends: [nobody] })).toMatchObject({ models: [], directory: { awaited: [0], unlisted: 1 } })
  const named = await find({ backends: [nobody], model: 'm', models: { policy: { backends: [{ url: nobody }] } } })
  expect(named).toMatchObject({
    models: [{ name: 'policy' }, { name: 'm' }],
    directory: { awaited: [0, 1], unlisted: 0 },
  })
})

describe('a repeated probe', () => {
  const never = new AbortController().signal

  test('excludes a backend that does not fit, unless it is the only one', async () => {
    await using late = await LateServer.start()
    await using good = await SimulatorServer.start({ models: 'm' })
    await using other = await SimulatorServer.start({ models: 'x' })
    const [beside, alone] = [
      (await find({ backends: [good.url, late.url], model: 'm' })).directory,
      (await find({ backends: [], models: { m: { backends: [{ url: late.url }] } } })).directory,
    ]
    expect(beside.models).toMatchObject([{ backends: [{ url: good.url }, { url: late.url }] }])
    late.put(other.url)
    await beside.askAgain(1, never)
    await alone.askAgain(0, never)
    expect(beside).toMatchObject({ awaited: [1], unusable: [{ code: 'model_not_found' }] })
    expect(beside.models[0]?.backends.map(({ url }) => url)).toEqual([good.url])
    // Whoever asks for it is told what is wrong.
    expect(alone.models[0]?.backends.map(({ url }) => url)).toEqual([late.url])
    expect(alone.usable[0]?.backends).toEqual([])
    late.put(good.url)
    await beside.askAgain(1, never)
    expect(beside.models[0]?.backends.map(({ url }) => url)).toEqual([good.url, late.url])
    expect(beside).toMatchObject({ awaited: [], unusable: [] })
  })

  test('excludes a backend that refuses the key', async () => {
    await using late = await LateServer.start()
    await using good = await SimulatorServer.start({})
    const { directory } = await find({ backends: [late.url, good.url], model: 'sim' })
    await using strict = createServer((_request, response) => response.writeHead(401).end('{}'))
    await once(strict.listen(0, '127.0.0.1'), 'listening')
    late.put(`http://127.0.0.1:${(strict.address() as AddressInfo).port}`)
    expect(await directory.askAgain(0, never)).toMatchObject({
      problem: { code: 'model_auth' },
      serves: { name: 'sim' },
    })
    strict.closeAllConnections()
    expect(directory.models[0]?.backends.map(({ url }) => url)).toEqual([good.url])
  })

  test.each([
    ['named', (url: string) => ({ backends: [url], model: 'a' })],
    ['of a file', (url: string) => ({ backends: [], models: { a: { backends: [{ url }] } } })],
  ])('excludes a backend that no longer serves its model, %s', async (_how, options) => {
    await using late = await LateServer.start()
    await using first = await SimulatorServer.start({ models: 'a' })
    await using second = await SimulatorServer.start({ models: 'b' })
    late.put(first.url)
    const { directory } = await find(options(late.url))
    expect([await directory.saysOtherwise(0, never), directory.awaited]).toEqual([false, []])
    late.put(second.url)
    expect(await directory.saysOtherwise(0, never)).toBe(true)
    expect(await directory.askAgain(0, never)).toMatchObject({ problem: { code: 'model_not_found' } })
    expect(directory.usable[0]?.backends).toEqual([])
  })

  test('excludes a backend that now refuses the key, and keeps its models', async () => {
    await using late = await LateServer.start()
    await using first = await SimulatorServer.start({ models: 'own,shared' })
    await using locked = await SimulatorServer.start({ models: 'own,shared', apiKey: 'another' })
    await using good = await SimulatorServer.start({ models: 'shared' })
    late.put(first.url)
    const { directory } = await find({ backends: [late.url, good.url] })
    const servers = (models: readonly ModelConfig[]) =>
      Object.fromEntries(models.map(({ name, backends }) => [name, backends.map(({ url }) => url)]))
    const before = servers(directory.models)
    expect(before).toEqual({ own: [late.url], shared: [late.url, good.url] })
    late.put(locked.url)
    expect(await directory.saysOtherwise(0, never)).toBe(true)
    expect(await directory.askAgain(0, never)).toMatchObject({ problem: { code: 'model_auth' } })
    // Whoever asks for the one that nobody else has is told.
    expect(servers(directory.models)).toEqual({ own: [late.url], shared: [good.url] })
    expect(servers(directory.usable)).toEqual({ own: [], shared: [good.url] })
    expect([directory.awaited, directory.unlisted, directory.unusable.length]).toEqual([[0], 0, 1])
    late.put(nobody)
    expect(await directory.askAgain(0, never)).toMatchObject({ problem: { retryable: true } })
    expect(servers(directory.usable)).toEqual(before)
    late.put(first.url)
    await directory.askAgain(0, never)
    expect([servers(directory.models), directory.awaited]).toEqual([before, []])
  })

  test('asks for the model list only, and for more if the list changed', async () => {
    await using late = await LateServer.start()
    await using first = await SimulatorServer.start({ models: 'a,b' })
    await using second = await SimulatorServer.start({ models: 'b,c' })
    late.put(first.url)
    const { directory } = await find({ backends: [late.url] })
    const asked = first.stats.requests
    expect(await directory.saysOtherwise(0, never)).toBe(false)
    // Nothing was sampled for that.
    expect(first.stats.requests).toBe(asked)
    late.put(nobody)
    expect(await directory.saysOtherwise(0, never)).toBe(false)
    expect(await directory.askAgain(0, never)).toBeUndefined()
    expect(directory.models.map(({ name }) => name)).toEqual(['a', 'b'])
    late.put(second.url)
    expect(await directory.saysOtherwise(0, never)).toBe(true)
    await directory.askAgain(0, never)
    expect(directory.models.map(({ name }) => name)).toEqual(['b', 'c'])
  })

  test('adds the listed models, also to other backends of the same model', async () => {
    await using first = await SimulatorServer.start({ models: 'a' })
    await using late = await LateServer.start()
    const { directory } = await find({
      backends: [late.url, first.url],
      models: { policy: { backends: [{ url: late.url }] } },
    })
    expect(await directory.askAgain(0, never)).toMatchObject({ problem: { code: 'model_connect' } })
    expect(directory.models.map(({ name }) => name)).toEqual(['policy', 'a'])
    await using second = await SimulatorServer.start({ models: 'a,b' })
    late.put(second.url)
    expect(await directory.askAgain(0, never)).toMatchObject({ facts: { kind: 'vllm' } })
    expect(directory).toMatchObject({ awaited: [2], unlisted: 0 })
    expect(directory.models).toMatchObject([
      { name: 'policy', backends: [{ engine: 'vllm' }] },
      { name: 'a', backends: [{ url: late.url }, { url: first.url }] },
      { name: 'b', backends: [{ url: late.url, engine: 'vllm' }] },
    ])
    expect(directory.facts['a']).toMatchObject({ capturesTokens: true })
  })

  test('treats a configuration error of a late backend as a reason to wait', async () => {
    await using late = await LateServer.start()
    const { directory } = await find({ backends: ['sim', late.url] })
    const said = async (status: number, document: unknown): Promise<string | undefined> => {
      await using server = createServer((_request, response) =>
        response.writeHead(status).end(JSON.stringify(document)),
      )
      await once(server.listen(0, '127.0.0.1'), 'listening')
      late.put(`http://127.0.0.1:${(server.address() as AddressInfo).port}`)
      const { problem } = (await directory.askAgain(0, never)) ?? {}
      server.closeAllConnections()
      return problem?.rawMessage
    }
    expect(await said(401, {})).toContain('apiKeyEnv')
    expect(await said(404, {})).toContain('check its path')
    expect(await said(200, { data: [] })).toContain('lists no models')
    expect(await said(200, { data: [{ id: 'sim' }] })).toContain('two models are called sim')
    expect(directory).toMatchObject({ awaited: [0], unlisted: 1, models: [{ name: 'sim', simulator: {} }] })
  })
})

test('a backend that refuses the key is refused at the start, whichever others answer', async () => {
  await using simulator = await SimulatorServer.start({})
  await using server = createServer((_request, response) => response.writeHead(401).end('{}'))
  await once(server.listen(0, '127.0.0.1'), 'listening')
  const { port } = server.address() as AddressInfo
  const url = `http://127.0.0.1:${port}/v1`
  await expect(find({ backends: [simulator.url, url], model: 'm' })).rejects.toMatchObject({ code: 'model_auth' })
  const models = { policy: { backends: [{ url: simulator.url }, { url }] } }
  await expect(find({ models })).rejects.toMatchObject({ code: 'model_auth' })
})

test('Anthropic is asked in its own API, with its own key', async () => {
  const env = { ANTHROPIC_API_KEY: 'a', OPENAI_API_KEY: 'o', HTTPS_PROXY: 'http://127.0.0.1:9' }
  const url = 'https://api.anthropic.com/v1'
  expect(await find({ backends: ['sim', url], model: 'claude-x', env })).toMatchObject({
    models: [
      { name: 'sim' },
      { name: 'claude-x', api: 'messages', backends: [{ url, apiKeyEnv: 'ANTHROPIC_API_KEY' }] },
    ],
    probeResults: [{ problem: { code: 'model_connect' } }],
  })
})

test('a server that supports only Messages is asked in that API, with its key', async () => {
  await using server = await SimulatorServer.start({ imitate: 'anthropic', models: 'claude' })
  const env = { ANTHROPIC_API_KEY: 'a', OPENAI_API_KEY: 'o' }
  const served = { name: 'claude', api: 'messages', backends: [{ url: server.url, apiKeyEnv: 'ANTHROPIC_API_KEY' }] }
  expect(await find({ backends: [server.url], env })).toMatchObject({
    models: [served],
    probeResults: [{ facts: { kind: 'anthropic', apis: ['messages'] } }],
  })
  expect(await find({ backends: [server.url], model: 'claude', env })).toMatchObject({
    models: [served],
    probeResults: [{ serves: { name: 'claude', api: 'messages' } }],
  })
  const inChat = { policy: { api: 'chat' as const, backends: [{ url: server.url }] } }
  await expect(find({ models: inChat, env })).rejects.toThrow('set api: messages')
})

test('a server that answers with HTML is refused, also if its model is named', async () => {
  await using server = createServer((_request, response) => response.end('<html>Welcome'))
  await once(server.listen(0, '127.0.0.1'), 'listening')
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`
  await expect(find({ backends: [url] })).rejects.toThrow('it is not JSON: <html>Welcome; check the url')
  await expect(find({ backends: [url], model: 'm' })).rejects.toThrow('it is not JSON')
})

test('the token check of one model does not count for another of the same server', async () => {
  await using simulator = await SimulatorServer.start({ models: 'a,b' })
  const { facts } = await find({ backends: [simulator.url] })
  expect(facts['a']).toMatchObject({ capturesTokens: true })
  expect(facts['b']).not.toHaveProperty('capturesTokens')
})

test('the built-in simulator needs no configuration, and is sufficient', async () => {
  expect(await find({ backends: ['sim'], model: 'mine' })).toMatchObject({ models: [{ name: 'mine', simulator: {} }] })
  expect(await find({ backends: ['sim', nobody], model: 'mine' })).toMatchObject({
    models: [{ name: 'sim' }, { name: 'mine', backends: [{ url: nobody }] }],
    probeResults: [{ problem: { code: 'model_connect' } }],
  })
})

test('a misspelled name of the built-in simulator is reported', async () => {
  for (const word of ['smi', 'SIM', 'simulator']) {
    await expect(find({ backends: [word] })).rejects.toThrow(`"${word}" is not a valid backend URL; did you mean sim`)
  }
  await expect(find({ backends: ['nonsense'] })).rejects.toThrow('Write it like http://localhost:8000/v1')
})

test('models of the file keep their settings', async () => {
  await using simulator = await SimulatorServer.start({ models: 'up' })
  const policy = { upstreamName: 'up', backends: [{ url: simulator.url }], maxConcurrency: 7 }
  const { models, facts } = await find({ models: { policy } })
  expect(models).toMatchObject([{ name: 'policy', upstreamName: 'up', maxConcurrency: 7 }])
  expect(facts['policy']).toMatchObject({ capturesTokens: true })
})

test('tokens are expected only in APIs that ask for them', async () => {
  await using simulator = await SimulatorServer.start({ models: 'up' })
  const inChat = { upstreamName: 'up', backends: [{ url: simulator.url }] }
  const { facts } = await find({ models: { inChat, inResponses: { ...inChat, api: 'responses' } } })
  expect(facts['inChat']).toHaveProperty('capturesTokens', true)
  expect(facts['inResponses']).not.toHaveProperty('capturesTokens')
})

test('the engine of a backend is detected, unless it is configured', async () => {
  await using vllm = await SimulatorServer.start({ models: 'a' })
  await using sglang = await SimulatorServer.start({ models: 'b', imitate: 'sglang' })
  const backends = [{ url: sglang.url, engine: 'vllm' as const }, { url: sglang.url }]
  const named = { upstreamName: 'b', backends }
  const { models, facts } = await find({ backends: [vllm.url, sglang.url], models: { named } })
  expect(models).toMatchObject([
    { name: 'named', backends: [{ engine: 'vllm' }, { engine: 'sglang' }] },
    { name: 'a', backends: [{ engine: 'vllm' }] },
    { name: 'b', backends: [{ engine: 'sglang' }] },
  ])
  expect(facts['b']).toMatchObject({ capturesTokens: true })
})

test('no model at all, and two models with one name, are refused', async () => {
  await expect(find({})).rejects.toMatchObject({ code: 'usage' })
  await expect(find({ backends: ['sim'], models: { sim: { simulator: {} } } })).rejects.toMatchObject({
    code: 'config_invalid',
    message: expect.stringContaining('two models are called sim') as string,
  })
})

describe('backends of one model with different APIs', () => {
  const env = { ANTHROPIC_API_KEY: 'a', OPENAI_API_KEY: 'o' }

  test('are refused, because a model has one API', async () => {
    await using inChat = await SimulatorServer.start({ models: 'm' })
    await using inMessages = await SimulatorServer.start({ imitate: 'anthropic', models: 'm' })
    const backends = [inChat.url, inMessages.url]
    for (const options of [{ backends }, { backends: backends.toReversed() }, { backends, model: 'm' }]) {
      await expect(find({ ...options, env })).rejects.toMatchObject({
        code: 'config_invalid',
        message: expect.stringMatching(/model m is served in \w+ by \S+ and in \w+ by \S+, .* in --config/) as string,
      })
    }
    await using other = await SimulatorServer.start({ imitate: 'anthropic', models: 'other' })
    expect(await find({ backends: [inChat.url, other.url], env })).toMatchObject({
      models: [
        { name: 'm', api: 'chat' },
        { name: 'other', api: 'messages' },
      ],
    })
  })

  test('exclude the one that answers late', async () => {
    await using inChat = await SimulatorServer.start({ models: 'm' })
    await using late = await LateServer.start()
    const { directory } = await find({ backends: [late.url, inChat.url], env })
    await using inMessages = await SimulatorServer.start({ imitate: 'anthropic', models: 'm' })
    late.put(inMessages.url)
    const { problem } = (await directory.askAgain(0, new AbortController().signal)) ?? {}
    expect(problem?.rawMessage).toContain('a model can have only one API')
    expect(directory.models).toMatchObject([{ name: 'm', api: 'chat', backends: [{ url: inChat.url }] }])
  })
})

test('a url without the version is refused, with the correct url', async () => {
  await using simulator = await SimulatorServer.start({})
  const root = new URL(simulator.url).origin
  for (const options of [{ backends: [root] }, { backends: [root], model: 'sim' }]) {
    await expect(find(options)).rejects.toMatchObject({
      code: 'config_invalid',
      message: expect.stringContaining(`did you mean ${root}/v1?`) as string,
    })
  }
})

test('a url of another kind of server is refused, whether its model is named or not', async () => {
  await using server = createServer((_request, response) => response.writeHead(404).end('<html>'))
  await once(server.listen(0, '127.0.0.1'), 'listening')
  const { port } = server.address() as AddressInfo
  const url = `http://127.0.0.1:${port}/v1`
  for (const options of [{ backends: [url] }, { backends: ['sim', url], model: 'm' }]) {
    await expect(find(options)).rejects.toMatchObject({
      code: 'config_invalid',
      message: expect.stringContaining(
        `${url} has no list of models and supports no known API; check its path`,
      ) as string,
    })
  }
})

test('the error for a missing or refused key names the settings of the gateway', async () => {
  await using server = createServer((_request, response) => response.writeHead(401).end('{}'))
  await once(server.listen(0, '127.0.0.1'), 'listening')
  const { port } = server.address() as AddressInfo
  const url = `http://127.0.0.1:${port}/v1`
  const told = async (env: FindModelsOptions['env']) => {
    const failure = await find({ backends: [url], env }).catch((error: unknown) => error)
    expect(failure).toMatchObject({
      code: 'model_auth',
      message: expect.stringMatching(/--config \(models\): apiKeyEnv, api: messages/) as string,
    })
    expect(String(failure)).not.toContain('--api-key-env')
    return String(failure)
  }
  expect(await told({})).toContain('it requires a key, but OPENAI_API_KEY is not set')
  expect(await told({ OPENAI_API_KEY: 'wrong' })).toContain('it rejects the key in OPENAI_API_KEY')
  const claude = { api: 'messages' as const, backends: [{ url: 'https://api.anthropic.com/v1' }] }
  await expect(find({ models: { claude } })).rejects.toMatchObject({
    code: 'model_auth',
    message: expect.not.stringContaining('Did you mean') as string,
  })
})
