import { describe, expect, test } from 'vitest'
import type { Backend } from '../apis/backend.ts'
import { resolveModelConfig, type ResolveModelOptions } from './resolve-config.ts'

const resolve = (model: ResolveModelOptions['model'], more: Partial<ResolveModelOptions> = {}) =>
  resolveModelConfig({ model, env: { OPENAI_API_KEY: 'k' }, ...more })
const failure = (work: () => unknown): string => {
  try {
    work()
  } catch (error) {
    return String(error)
  }
  return 'no error'
}

describe('a model name resolves to', () => {
  test('the simulator', () => {
    expect(resolve('sim', { env: {} })).toMatchObject({ name: 'sim', simulator: {}, backends: [] })
  })

  test('a configured model, before anything else', () => {
    const models = {
      sim: { name: 'sim', simulator: { skill: 1 } },
      fast: { name: 'fast', backends: [{ url: 'http://gpu:1/v1' }] },
    }
    expect(resolve('sim', { models })).toMatchObject({ simulator: { skill: 1 } })
    expect(resolve('fast', { models, env: {} })).toMatchObject({ backends: [{ url: 'http://gpu:1/v1' }] })
  })

  test('the key of a configured model; the inner name goes to its backends', () => {
    const models = { judge: { name: 'gpt-x' }, same: { name: 'same' }, bare: { simulator: { skill: 1 } } }
    expect(resolve('judge', { models })).toMatchObject({ name: 'judge', upstreamName: 'gpt-x' })
    expect(resolve('same', { models })).not.toHaveProperty('upstreamName')
    expect(resolve('bare', { models })).toMatchObject({ name: 'bare', simulator: { skill: 1 } })
    expect(resolve('bare', { models })).not.toHaveProperty('upstreamName')
  })

  test('a model of the endpoint in the environment', () => {
    expect(resolve('gpt-x').backends).toMatchObject([{ url: 'https://api.openai.com/v1', apiKeyEnv: 'OPENAI_API_KEY' }])
    const env = { OPENAI_BASE_URL: 'http://localhost:8000/v1' }
    expect(resolve('qwen', { env })).toMatchObject({ name: 'qwen', backends: [{ url: 'http://localhost:8000/v1' }] })
  })

  test('a model of Anthropic, by its API or by its name', () => {
    const env = { ANTHROPIC_API_KEY: 'k' }
    const there = {
      api: 'messages',
      backends: [{ url: 'https://api.anthropic.com/v1', apiKeyEnv: 'ANTHROPIC_API_KEY' }],
    }
    expect(resolve('claude-x', { env })).toMatchObject({ name: 'claude-x', ...there })
    expect(resolve({ name: 'other', api: 'messages' }, { env })).toMatchObject(there)
    expect(resolve('judge', { env, models: { judge: { name: 'claude-x' } } })).toMatchObject(there)
    // The name alone decides nothing where something else was said.
    expect(resolve({ name: 'claude-x', api: 'chat' })).toMatchObject({ backends: [{ apiKeyEnv: 'OPENAI_API_KEY' }] })
    const proxied = { OPENAI_BASE_URL: 'http://proxy/v1' }
    expect(resolve('claude-x', { env: proxied })).toMatchObject({ api: 'chat', backends: [{ url: 'http://proxy/v1' }] })
    const own = { name: 'claude-x', backends: [{ url: 'http://gpu:1/v1' }] }
    expect(resolve(own)).toMatchObject({
      api: 'chat',
      backends: [{ url: 'http://gpu:1/v1', apiKeyEnv: 'OPENAI_API_KEY' }],
    })
    expect(resolve({ name: 'claude-x', simulator: {} })).toMatchObject({ api: 'chat', backends: [] })
  })

  test.each([
    ['http://gate:1', 'http://gate:1/v1'],
    ['http://gate:1/sessions/s/', 'http://gate:1/sessions/s/v1'],
    ['http://gate:1/v1', 'http://gate:1/v1'],
    ['http://gate:1/v1/', 'http://gate:1/v1/'],
  ])('ANTHROPIC_BASE_URL=%s, with or without the version', (url, expected) => {
    const { backends } = resolve('claude-x', { env: { ANTHROPIC_BASE_URL: url } })
    expect(backends).toMatchObject([{ url: expected, apiKeyEnv: 'ANTHROPIC_API_KEY' }])
  })

  test('the key of a backend is in the variable it names, or in the variable of its API', () => {
    const backends = [{ url: 'http://a/v1' }, { url: 'http://b/v1', apiKeyEnv: 'B' }]
    const variables = (api: 'messages' | 'chat') =>
      resolve({ name: 'm', api, backends }, { env: { B: 'k' } }).backends.map((b) => b.apiKeyEnv)
    expect(variables('messages')).toEqual(['ANTHROPIC_API_KEY', 'B'])
    expect(variables('chat')).toEqual(['OPENAI_API_KEY', 'B'])
  })

  test('defaults fill only absent fields', () => {
    const defaults = { maxConcurrency: 7, maxTries: 2 }
    expect(resolve({ name: 'm', maxTries: 3 }, { defaults })).toMatchObject({
      maxConcurrency: 7,
      maxTries: 3,
      stream: false,
    })
  })
})

describe('a model with a backend object', () => {
  const backend: Backend = {
    name: 'mine',
    send: () => Promise.reject(new Error('never asked')),
    [Symbol.asyncDispose]: async () => {},
  }

  test('needs neither a url nor a key', () => {
    const standIns = { m: [backend], judge: [backend] }
    expect(resolve('m', { standIns, env: {} })).toMatchObject({ name: 'm', backends: [] })
    const models = { judge: { name: 'gpt-x', backends: [{ url: 'https://api.openai.com/v1' }] } }
    expect(resolve('judge', { standIns, models, env: {} })).toMatchObject({ name: 'judge', upstreamName: 'gpt-x' })
    expect(failure(() => resolve('other', { standIns, env: {} }))).toContain('[model_auth]')
  })
})

describe('config errors', () => {
  test('no key for OpenAI', () => {
    const said = failure(() => resolve('gpt-x', { env: {} }))
    expect(said).toContain('[model_auth]')
    expect(said).toContain('OPENAI_API_KEY')
    expect(said).toContain('use the built-in model sim')
    expect(failure(() => resolve('simm', { env: {} }))).toMatch(
      /^\S+ \S+ did you mean "sim"\? model simm is served by OpenAI/,
    )
  })

  test('no key for OpenAI, and a name that is not among the given models', () => {
    const models = { policy: { backends: [{ url: 'http://a/v1' }] }, grader: {} }
    expect(failure(() => resolve('qwen', { models, env: {} }))).toContain(
      'model qwen is not in the given models (policy and grader), so OpenAI would serve it, and OPENAI_API_KEY is not set.',
    )
    expect(failure(() => resolve('grader', { models, env: {} }))).toContain(
      ' model grader is served by OpenAI and OPENAI_API_KEY is not set. Set OPENAI_API_KEY, name another server in its config, as `backends: [{ url: … }]`, or',
    )
    expect(failure(() => resolve({ name: 'x' }, { models, env: {} }))).toContain(' model x is served by OpenAI and ')
  })

  test('no key for Anthropic', () => {
    const said = failure(() => resolve('claude-x'))
    expect(said).toMatch(/\[model_auth\].*Anthropic.*ANTHROPIC_API_KEY.*ANTHROPIC_BASE_URL/)
    const backends = [{ url: 'https://api.anthropic.com/v1', headers: { 'X-Api-Key': 'k' } }]
    expect(resolve({ name: 'm', api: 'messages', backends }, { env: {} })).toMatchObject({ backends })
  })

  test('no key in the variable that a backend names, unless it is sent otherwise', () => {
    const backends = [{ url: 'http://a/v1' }, { url: 'http://b:1/v1', apiKeyEnv: 'B_KEY' }]
    expect(failure(() => resolve({ name: 'm', backends }, { env: { B_KEY: '' } }))).toMatch(
      /\[config_invalid\] model m: `apiKeyEnv` of its backend b:1 names B_KEY, which is not set: set/,
    )
    expect(resolve({ name: 'm', backends }, { env: { B_KEY: 'k' } })).toMatchObject({ backends })
    const sent = [{ ...backends[1]!, headers: { authorization: 'Bearer k' } }]
    expect(resolve({ name: 'm', backends: sent }, { env: {} })).toMatchObject({ backends: sent })
    expect(resolve({ name: 'm', backends }, { env: {}, isUnasked: true })).toMatchObject({ backends })
  })

  test.each([
    ['gpt-x', 'OPENAI_BASE_URL'],
    ['claude-x', 'ANTHROPIC_BASE_URL'],
  ])('no url in the variable for the address of %s', (name, variable) => {
    const said = failure(() => resolve(name, { env: { [variable]: 'localhost:8000' } }))
    expect(said).toContain(`[config_invalid] ${variable} is a url such as http://localhost:8000/v1, not localhost:8000`)
  })

  test.each([
    ['a wrong number', { name: 'm', maxConcurrency: 0 }, /\[config_invalid\].*maxConcurrency/],
    [
      'a misspelt field',
      { name: 'm', maxConcurency: 3 },
      /`maxConcurency` is not known; did you mean `maxConcurrency`\?/,
    ],
    [
      'one of a backend',
      { name: 'm', backends: [{ url: 'http://a/v1', apiKey: 'secret' }] },
      /backends\[0\]: `apiKey` is not/,
    ],
    ['one of a price', { name: 'm', price: { input: 1, outputs: 2, output: 2 } }, /price: .*did you mean `output`\?/],
    ['both kinds', { name: 'm', simulator: {}, backends: [{ url: 'http://a/v1' }] }, /both backends and a simulator/],
    ['no url', { name: 'm', backends: [{ url: 'localhost:8000' }] }, /localhost:8000.*http:\/\/localhost:8000\/v1/],
    ['a key in the url', { name: 'm', backends: [{ url: 'http://user:secret@a/v1' }] }, /contains credentials/],
    ['no name', '', /no name/],
  ])('%s', (_name, model, expected) => {
    const said = failure(() => resolve(model))
    expect(said).toMatch(expected)
    expect(said).not.toContain('secret')
  })
})
