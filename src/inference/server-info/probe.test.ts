import { describe, expect, test, vi } from 'vitest'
import { activeResources, leftSince } from '../../../test/support/kit/active-resources.ts'
import { codeOf, failureOf } from '../../../test/support/inference/code-of.ts'
import { ScriptedServer, chatReply, sendJson, type Handler } from '../../../test/support/inference/scripted-server.ts'
import { modelConfigSchema, type BackendConfig } from '../config.ts'
import { probeBackend, type BackendFacts, type ProbeOptions } from './probe.ts'

const never = new AbortController().signal
const none = {
  ids: false,
  logprobs: false,
  promptIds: false,
  routedExperts: false,
  version: false,
  inStreams: false,
}

function backendAt(url: string): BackendConfig {
  const { backends } = modelConfigSchema.parse({ name: 'm', backends: [{ url, apiKeyEnv: 'KEY' }] })
  return backends[0] as BackendConfig
}

const probe = (url: string, options: Partial<ProbeOptions> = {}): Promise<BackendFacts> =>
  probeBackend(backendAt(url), { env: { KEY: 'secret' }, signal: never, ...options })

/** What a server answers by path; 404 for everything else. An empty request is refused with 400, as everywhere. */
type Pages = Record<string, object>

const serve =
  (pages: Pages): Handler =>
  (response, { path, body }) => {
    const page = pages[path]
    if (!page) sendJson(response, { detail: 'Not Found' }, 404)
    else if (body === '{}') sendJson(response, { error: { message: 'messages: field required' } }, 400)
    else sendJson(response, page)
  }

async function factsOf(pages: Pages, options: Partial<ProbeOptions> = {}): Promise<BackendFacts> {
  await using server = await ScriptedServer.start(serve(pages))
  return await probe(server.url, options)
}

const listing = (...data: object[]): object => ({ object: 'list', data })
const model = (id: string, more: object = {}): object => ({ id, object: 'model', created: 0, ...more })
const tokens = {
  prompt_token_ids: [1, 2],
  choices: [{ index: 0, token_ids: [7], logprobs: { content: [{ logprob: -1 }] } }],
}

describe('server kinds', () => {
  test('vLLM', async () => {
    const facts = await factsOf({
      '/v1/models': listing(model('qwen', { owned_by: 'vllm', max_model_len: 4096 })),
      '/v1/chat/completions': tokens,
      '/v1/responses': {},
      '/v1/messages': {},
    })
    expect(facts).toEqual({
      kind: 'vllm',
      models: [{ id: 'qwen', contextLength: 4096 }],
      tokenFields: { ...none, ids: true, logprobs: true, promptIds: true, inStreams: true },
      apis: ['chat', 'responses', 'messages'],
    })
  })

  test('vLLM behind a router with its own model list', async () => {
    const listed = { '/v1/models': listing(model('qwen', { owned_by: 'router', max_model_len: 4096 })) }
    expect(await factsOf({ ...listed, '/version': { version: '0.11.0' } })).toMatchObject({ kind: 'vllm' })
    expect(await factsOf(listed)).toMatchObject({ kind: 'unknown' })
  })

  test('SGLang, also an older one that gives the context length elsewhere', async () => {
    const chat = {
      '/v1/chat/completions': {
        metadata: { weight_version: 'v1' },
        choices: [{ sgl_ext: { routed_experts: 'AAAA' }, logprobs: { content: [{ logprob: -1 }] } }],
      },
    }
    const newer = { '/v1/models': listing(model('q', { owned_by: 'sglang', max_model_len: 512 })), ...chat }
    const facts = {
      kind: 'sglang',
      models: [{ id: 'q', contextLength: 512 }],
      tokenFields: { ...none, logprobs: true, routedExperts: true, version: true },
      apis: ['chat'],
    }
    expect(await factsOf(newer)).toEqual(facts)
    const older = {
      '/v1/models': listing(model('q')),
      '/get_model_info': { model_path: '/models/q', is_generation: true },
      '/get_server_info': { context_length: 512, model_path: '/models/q' },
      ...chat,
    }
    expect(await factsOf(older)).toEqual(facts)
    const { '/get_model_info': info, '/get_server_info': _left, ...rest } = older
    const lengthless = { ...facts, models: [{ id: 'q' }] }
    expect(await factsOf({ ...rest, '/model_info': info })).toEqual(lengthless)
  })

  test('SGLang, with its own token fields', async () => {
    const chosen = { prompt_token_ids: [1, 2], meta_info: { output_token_logprobs: [[-1, 5, 'x']] } }
    const pages = {
      '/v1/models': listing(model('q', { owned_by: 'sglang' })),
      '/v1/chat/completions': { choices: [chosen] },
    }
    await using server = await ScriptedServer.start(serve(pages))
    const { tokenFields } = await probe(server.url)
    // With whole replies only.
    expect(tokenFields).toEqual({ ...none, ids: true, logprobs: true, promptIds: true, inStreams: false })
    const asked = server.requests.find(({ path, body }) => path === '/v1/chat/completions' && body !== '{}')
    expect(JSON.parse(asked?.body ?? '')).toMatchObject({ logprobs: true, return_meta_info: true })
    expect(asked?.body).not.toContain('return_token_ids')
  })

  test('the simulator', async () => {
    const pages = { '/v1/models': listing(model('sim', { owned_by: 'millrace' })), '/v1/chat/completions': tokens }
    expect(await factsOf(pages)).toMatchObject({ kind: 'millrace-sim', models: [{ id: 'sim' }] })
  })

  test('a server with the API of Anthropic', async () => {
    const listed = { data: [{ type: 'model', id: 'c', display_name: 'C', max_input_tokens: 9 }], has_more: false }
    const facts = await factsOf({ '/v1/models': listed, '/v1/messages': {} }, { api: 'messages' })
    expect(facts).toEqual({
      kind: 'anthropic',
      models: [{ id: 'c', contextLength: 9 }],
      tokenFields: none,
      apis: ['messages'],
    })
  })

  test('a model list that mixes both formats is of an unknown kind', async () => {
    expect((await factsOf({ '/v1/models': listing(model('a', { type: 'model' })) })).kind).toBe('unknown')
  })

  test('a server with Chat only, and no information about itself', async () => {
    const facts = await factsOf({ '/v1/chat/completions': chatReply('x') }, { model: 'mine' })
    expect(facts).toEqual({ kind: 'unknown', models: [], tokenFields: none, apis: ['chat'] })
  })

  test('a server without any known endpoint', async () => {
    expect(await factsOf({})).toEqual({ kind: 'unknown', models: [], tokenFields: undefined, apis: [] })
  })
})

describe('the official providers', () => {
  /** Plain requests to any host go to the proxy, so that it can answer in the host's name. */
  async function factsOfProvider(host: string, page: object): Promise<{ facts: BackendFacts; server: ScriptedServer }> {
    await using server = await ScriptedServer.start((response) => sendJson(response, page))
    const facts = await probe(`http://${host}/v1`, { env: { KEY: 'secret', HTTP_PROXY: server.origin } })
    return { facts, server }
  }

  test('Anthropic is asked only for its models, with the key in its own header', async () => {
    const { facts, server } = await factsOfProvider('api.anthropic.com', { data: [{ type: 'model', id: 'claude' }] })
    expect(facts).toEqual({ kind: 'anthropic', models: [{ id: 'claude' }], tokenFields: none, apis: ['messages'] })
    expect(server.requests).toHaveLength(1)
    expect(server.requests[0]?.headers).toMatchObject({ 'x-api-key': 'secret', 'anthropic-version': '2023-06-01' })
    expect(server.requests[0]?.headers).not.toHaveProperty('authorization')
  })

  test('OpenAI is asked once, with the key as a bearer token', async () => {
    const { facts, server } = await factsOfProvider('api.openai.com', listing(model('gpt', { owned_by: 'openai' })))
    expect(facts).toEqual({ kind: 'openai', models: [{ id: 'gpt' }], tokenFields: none, apis: ['chat', 'responses'] })
    expect(server.requests).toHaveLength(1)
    expect(server.requests[0]?.headers).toMatchObject({ authorization: 'Bearer secret' })
  })
})

describe('the token check', () => {
  const listed = { '/v1/models': listing(model('a'), model('b')) }

  test('asks for one token of the first model, or of the named one', async () => {
    await using server = await ScriptedServer.start(serve({ ...listed, '/v1/chat/completions': tokens }))
    await probe(server.url)
    await probe(server.url, { model: 'b' })
    const asked = server.requests
      .filter(({ path, body }) => path === '/v1/chat/completions' && body !== '{}')
      .map(({ body }) => JSON.parse(body) as object)
    const fields = { max_tokens: 1, logprobs: true, return_token_ids: true }
    expect(asked).toMatchObject([
      { model: 'a', ...fields },
      { model: 'b', ...fields },
    ])
  })

  test('reads the weight version from a header as well', async () => {
    await using server = await ScriptedServer.start((response, request) => {
      response.setHeader('x-weight-version', '3')
      return serve({ ...listed, '/v1/chat/completions': tokens })(response, request)
    })
    expect((await probe(server.url)).tokenFields).toMatchObject({ version: true })
  })

  test.each([
    [400, none],
    [404, none],
    [422, none],
    [429, undefined],
    [500, undefined],
    [503, undefined],
  ])('is answered with %i', async (status, expected) => {
    await using server = await ScriptedServer.start((response, { path, body }) => {
      if (path === '/v1/models') sendJson(response, listed['/v1/models'])
      else if (path === '/v1/chat/completions') sendJson(response, {}, body === '{}' ? 400 : status)
      else sendJson(response, {}, 404)
    })
    expect((await probe(server.url)).tokenFields).toEqual(expected)
  })

  test.each([{}, { choices: [] }, { error: { message: 'x' } }, []])('is answered with %j', async (page) => {
    expect((await factsOf({ ...listed, '/v1/chat/completions': page })).tokenFields).toBeUndefined()
  })
})

describe('an unusable server', () => {
  test.each([
    [401, 'model_auth'],
    [403, 'model_auth'],
    [429, 'model_rate_limited'],
    [500, 'model_server_error'],
    [503, 'model_overloaded'],
  ])('answers %i', async (status, code) => {
    await using server = await ScriptedServer.start((response) => sendJson(response, {}, status))
    const error = await failureOf(() => probe(server.url))
    expect(error).toMatchObject({ code })
    expect(String(error)).not.toContain('secret')
    expect(server.requests).toHaveLength(1)
  })

  test.each([
    [{ KEY: 'secret' }, 'Check the key in KEY, or name another'],
    [{}, 'KEY is not set: put the key there, or name another'],
  ])('with %j gets advice about the key', async (env, step) => {
    await using server = await ScriptedServer.start((response) => sendJson(response, {}, 401))
    expect(String(await failureOf(() => probe(server.url, { env })))).toContain(step)
  })

  test('refuses the key only for a valid request', async () => {
    await using server = await ScriptedServer.start((response, { path, body }) => {
      if (path === '/v1/models') sendJson(response, listing(model('a')))
      else sendJson(response, {}, body === '{}' ? 400 : 401)
    })
    expect(await codeOf(() => probe(server.url))).toBe('model_auth')
  })

  test('is unreachable, or breaks off', async () => {
    expect(await codeOf(() => probe('http://127.0.0.1:9/v1'))).toBe('model_connect')
    await using server = await ScriptedServer.start((response) => response.destroy())
    expect(await codeOf(() => probe(server.url))).toBe('model_connect')
  })

  test('lists invalid models, or an endless list', async () => {
    for (const page of [5, [], { data: 'x' }, { data: [null, 5, { id: 7 }] }]) {
      expect(await factsOf({ '/v1/models': page as object })).toMatchObject({ kind: 'unknown', models: [] })
    }
    await using server = await ScriptedServer.start((response) => {
      response.writeHead(200, { 'content-type': 'application/json' })
      response.end(Buffer.alloc(9 * 1024 * 1024, ' '))
    })
    expect(await codeOf(() => probe(server.url))).toBe('model_malformed')
  })
})

describe('a server that', () => {
  const page = '<!doctype html>\n<title>Hello</title>'

  test('has only HTML pages is refused, with the start of one', async () => {
    await using server = await ScriptedServer.start((response) => void response.end(page))
    const failure = await failureOf(() => probe(server.url))
    expect(failure).toMatchObject({
      code: 'config_invalid',
      message: expect.stringContaining('it is not JSON: <!doctype html> <title>Hello</title>; check the url') as string,
    })
  })

  test('has an HTML page instead of a model list, but an API, is usable', async () => {
    await using server = await ScriptedServer.start((response, { path }) => {
      if (path === '/v1/chat/completions') sendJson(response, { error: { message: 'no' } }, 400)
      else response.end(page)
    })
    expect(await probe(server.url)).toMatchObject({ models: [], apis: ['chat'] })
  })

  test('requires x-api-key is not asked in another API', async () => {
    await using server = await ScriptedServer.start((response) => {
      sendJson(response, { error: { message: 'the header anthropic-version is missing' } }, 400)
    })
    expect(await failureOf(() => probe(server.url))).toMatchObject({
      code: 'config_invalid',
      data: { api: 'messages' },
    })
  })
})

describe('time limits', () => {
  function fakeTimers(): Disposable {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    return { [Symbol.dispose]: () => void vi.useRealTimers() }
  }

  test('a server that does not answer the model list fails', async () => {
    await using server = await ScriptedServer.start(() => undefined)
    using _timers = fakeTimers()
    const code = codeOf(() => probe(server.url))
    await server.received(1)
    vi.advanceTimersByTime(10_000)
    expect(await code).toBe('model_timeout')
  })

  test('a server that hangs later keeps the results so far', async () => {
    await using server = await ScriptedServer.start((response, request) => {
      const isQuestion = request.path === '/v1/chat/completions' && request.body !== '{}'
      if (!isQuestion)
        return serve({ '/v1/models': listing(model('a')), '/v1/chat/completions': {} })(response, request)
      return undefined
    })
    using _timers = fakeTimers()
    const facts = probe(server.url)
    // The list, three APIs, three places for the kind, and the question.
    await server.received(8)
    vi.advanceTimersByTime(10_000)
    expect(await facts).toEqual({ kind: 'unknown', models: [{ id: 'a' }], tokenFields: undefined, apis: ['chat'] })
  })

  test('an abort ends the probe, with its reason, and leaves no resource', async () => {
    const before = activeResources()
    for (const hung of [1, 8]) {
      let number = 0
      await using server = await ScriptedServer.start((response, request) => {
        number += 1
        if (number >= hung) return undefined
        return serve({ '/v1/models': listing(model('a')), '/v1/chat/completions': {} })(response, request)
      })
      const controller = new AbortController()
      const failure = failureOf(() => probe(server.url, { signal: controller.signal }))
      await server.received(hung)
      controller.abort(new Error('enough'))
      expect(String(await failure)).toContain('enough')
    }
    expect(await leftSince(before)).toEqual([])
  })
})
