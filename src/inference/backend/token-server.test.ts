import { describe, expect, test } from 'vitest'
import { dialectOptions } from '../../../test/support/inference/dialect-options.ts'
import { TokenServer } from './token-server.ts'

interface Answer {
  readonly status?: number
  readonly document?: unknown
}

const { signal } = new AbortController()
const named = { choices: [{ logprobs: { tokens: ['token_id:5'], token_logprobs: [-1] }, finish_reason: 'length' }] }
const inField = { choices: [{ logprobs: { tokens: ['a'] }, token_ids: [5], finish_reason: 'length' }] }
const models = { data: [{ id: 'other' }, { id: 'm', root: '/models/m', max_model_len: 4096 }] }

/** A server with these paths; one with several answers gives them in turn, and the last one from then on. */
function serverWith(paths: Readonly<Record<string, Answer | Answer[]>>) {
  const asked: { path: string; body: string | undefined }[] = []
  const server = new TokenServer({
    ask: async (path, _signal, body) => {
      asked.push({ path, body: body?.toString() })
      const answers = [paths[path] ?? { status: 404 }].flat()
      const before = asked.filter((each) => each.path === path).length - 1
      const { status = 200, document = {} } = answers[Math.min(before, answers.length - 1)] ?? {}
      return { status, document, headers: {} }
    },
    base: '/v1',
    root: '',
    source: dialectOptions('chat/completions').source,
    signal,
  })
  return { server, asked }
}

describe('the path that takes ids', () => {
  test.each([
    {
      name: 'is that of SGLang, if the server names its model as SGLang does',
      paths: {
        '/get_model_info': { document: { tokenizer_path: '/models/s' } },
        '/get_server_info': { document: { context_length: 2048 } },
        '/generate': { document: { output_ids: [1] } },
      },
      facts: { path: '/generate', contextLength: 2048, tokenizerFolder: '/models/s' },
    },
    {
      name: 'is that of SGLang under its newer names',
      paths: {
        '/model_info': { document: { model_path: '/models/s' } },
        '/v1/models': { document: { data: [{ id: 'm', max_model_len: 9 }] } },
        '/generate': {},
      },
      facts: { path: '/generate', contextLength: 9, tokenizerFolder: '/models/s' },
    },
    {
      name: "is vLLM's own",
      paths: { '/v1/models': { document: models }, '/inference/v1/generate': { document: {} } },
      facts: { path: '/inference/v1/generate', contextLength: 4096, tokenizerFolder: '/models/m' },
    },
    {
      name: 'is that of completions, if vLLM was started without its own',
      paths: {
        '/v1/models': { document: models },
        '/inference/v1/generate': { status: 403 },
        '/v1/completions': { document: named },
      },
      facts: { path: '/v1/completions', contextLength: 4096, tokenizerFolder: '/models/m' },
    },
    {
      name: 'is that of completions, if it answers other paths with a page',
      paths: {
        '/inference/v1/generate': { document: '<!doctype html>' },
        '/v1/completions': [{ document: { choices: [{ text: 'a' }] } }, { document: inField }],
      },
      facts: { path: '/v1/completions', contextLength: undefined, tokenizerFolder: undefined },
    },
  ])('$name', async ({ paths, facts }) => {
    const { server, asked } = serverWith(paths)
    expect(await server.facts()).toEqual(facts)
    const { length } = asked
    expect(server.pathOf(await server.endpoint())).toBe(facts.path)
    // It is found out once.
    expect(asked).toHaveLength(length)
  })

  test('is missing: the error says what to do', async () => {
    const { server } = serverWith({ '/v1/completions': { document: { choices: [{ text: 'a' }] } } })
    await expect(server.facts()).rejects.toMatchObject({
      code: 'config_invalid',
      message: expect.stringContaining('use vLLM or SGLang') as string,
    })
  })

  test.each([
    { name: 'a busy server', answer: { status: 503 }, code: 'model_overloaded' },
    { name: 'a spoiled answer', answer: { document: '{"choices": [' }, code: 'model_malformed' },
    {
      name: 'an answer that a weight update aborted',
      answer: { document: { choices: [{ finish_reason: 'abort', text: '' }] } },
      code: 'model_malformed',
    },
    { name: 'an error with status 200', answer: { document: { error: { message: 'no' } } }, code: 'model_malformed' },
    { name: 'a wrong key', answer: { status: 401 }, code: 'model_auth' },
  ])('is not decided by $name, and looked for again', async ({ answer, code }) => {
    const { server } = serverWith({ '/inference/v1/generate': [answer, { document: {} }] })
    await expect(server.facts()).rejects.toMatchObject({ code })
    expect(await server.facts()).toMatchObject({ path: '/inference/v1/generate' })
  })

  test('is not decided by a list of models that is busy', async () => {
    const { server } = serverWith({
      '/v1/models': [{ status: 429 }, { document: models }],
      '/inference/v1/generate': { document: {} },
    })
    await expect(server.facts()).rejects.toMatchObject({ code: 'model_rate_limited' })
    expect(await server.facts()).toMatchObject({ contextLength: 4096 })
  })
})

describe('the server’s tokenizer', () => {
  test('encodes a text, and a conversation in its template', async () => {
    const { server, asked } = serverWith({ '/tokenize': { document: { tokens: [1, 2] } } })
    expect(await server.tokenize('a', signal)).toEqual(Int32Array.of(1, 2))
    const messages = [{ role: 'user', content: 'a' } as const]
    expect(await server.tokenize({ messages, tools: [] }, signal)).toEqual(Int32Array.of(1, 2))
    expect(asked.map(({ body }) => JSON.parse(body ?? '') as unknown)).toEqual([
      { model: 'm', prompt: 'a', add_special_tokens: false },
      { model: 'm', messages, add_generation_prompt: true, add_special_tokens: false },
    ])
  })

  test('cannot be asked, if there is no such path or its answer has no ids', async () => {
    expect(await serverWith({}).server.tokenize('a', signal)).toBeUndefined()
    const texts = serverWith({ '/tokenize': { document: { tokens: ['a'] } } })
    expect(await texts.server.tokenize('a', signal)).toBeUndefined()
  })

  test('of a busy server must be asked again; its template may refuse a conversation with any status', async () => {
    const { server } = serverWith({ '/tokenize': { status: 500 } })
    await expect(server.tokenize('a', signal)).rejects.toMatchObject({ code: 'model_server_error' })
    expect(await server.tokenize({ messages: [], tools: [] }, signal)).toBeUndefined()
  })
})
