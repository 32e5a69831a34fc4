import { expect, test } from 'vitest'
import { MillraceError } from '../../errors/index.ts'
import { codeOf, failureOf } from '../../../test/support/inference/code-of.ts'
import { FakeBackend, failure, goodReply } from '../../../test/support/inference/fake-backend.ts'
import { openBackend } from '../../../test/support/inference/open-backend.ts'
import { ScriptedServer, chatReply, sendJson, type Handler } from '../../../test/support/inference/scripted-server.ts'
import type { Backend } from '../../apis/backend.ts'
import { modelConfigSchema } from '../config.ts'
import { Model } from '../model/model.ts'
import { preflight } from './preflight.ts'

const never = new AbortController().signal
const modelOf = (...backends: Backend[]): Model => new Model(modelConfigSchema.parse({ name: 'gpt-y' }), backends)

async function check(handler: Handler): Promise<{ error: unknown; requests: number }> {
  await using server = await ScriptedServer.start(handler)
  await using backend = openBackend(server.url, { name: 'gpt-y' })
  await using model = modelOf(backend)
  const error = await failureOf(() => preflight(model, never))
  return { error, requests: server.requests.length }
}

test('a backend that answers passes with one tiny request', async () => {
  await using server = await ScriptedServer.start((response) => sendJson(response, chatReply('ready')))
  await using backend = openBackend(server.url)
  await using model = modelOf(backend)
  await preflight(model, never)
  expect(server.requests).toHaveLength(1)
  expect(JSON.parse(server.requests[0]?.body ?? '')).toMatchObject({ max_tokens: 16 })
})

test('a missing key is reported at once', async () => {
  const { error, requests } = await check((response) => sendJson(response, { error: { message: 'bad key' } }, 401))
  expect(error).toMatchObject({ code: 'model_auth' })
  expect(String(error)).toContain('OPENAI_API_KEY is not set')
  expect(requests).toBe(1)
})

test('the error for an unknown model lists the known models', async () => {
  const { error } = await check((response, { path }) => {
    if (path === '/v1/models') sendJson(response, { data: [{ id: 'llama' }, { id: 'gpt-x' }] })
    else sendJson(response, { error: { message: 'The model does not exist' } }, 404)
  })
  expect(error).toMatchObject({ code: 'model_not_found' })
  expect(String(error)).toMatch(/^\S+ \S+ Did you mean "gpt-x"\? .*answered 404.* The server offers: gpt-x, llama\.$/)
})

test('the error for a server with another API names that API', async () => {
  const { error } = await check((response, { path }) => {
    if (path === '/v1/models') sendJson(response, { data: [{ id: 'gpt-y' }] })
    else if (path === '/v1/messages') sendJson(response, { type: 'error', error: { message: 'model: missing' } }, 400)
    else sendJson(response, { type: 'error', error: { type: 'not_found_error', message: 'Not found' } }, 404)
  })
  expect(error).toMatchObject({ code: 'model_not_found' })
  expect(String(error)).toMatch(/has no \/chat\/completions, but it has \/messages: add --api messages .*answered 404/)
  expect(String(error)).not.toContain('Did you mean')
})

test('a server that requires x-api-key fails with model_auth', async () => {
  const { error } = await check((response) =>
    sendJson(
      response,
      { type: 'error', error: { type: 'authentication_error', message: 'x-api-key is required' } },
      401,
    ),
  )
  expect(error).toMatchObject({ code: 'model_auth' })
  expect(String(error)).toMatch(/If it speaks Anthropic's API, add --api messages/)
})

test('an unknown model on a server without a model list fails', async () => {
  const { error } = await check((response) => sendJson(response, 'nothing here', 404))
  expect(error).toMatchObject({ code: 'model_not_found' })
})

test('a busy backend passes, because it delays rollouts but fails none', async () => {
  expect((await check((response) => sendJson(response, {}, 503))).error).toBe('no error')
  expect((await check((response) => sendJson(response, {}, 429))).error).toBe('no error')
})

test('a model that exceeds the tiny token limit with thinking passes', async () => {
  const message = 'Could not finish the message because max_tokens or model output limit was reached.'
  const { error, requests } = await check((response) => sendJson(response, { error: { message } }, 400))
  expect(error).toBe('no error')
  expect(requests).toBe(1)
})

test('a temporary failure passes; a permanent one fails', async () => {
  let number = 0
  const { error } = await check((response) => {
    number += 1
    sendJson(response, number === 1 ? {} : chatReply('ready'), number === 1 ? 500 : 200)
  })
  expect(error).toBe('no error')
  await using backend = openBackend('http://127.0.0.1:9/v1')
  await using model = modelOf(backend)
  expect(await codeOf(() => preflight(model, never))).toBe('model_connect')
})

test('of several backends one must answer and none may refuse', async () => {
  const good = new FakeBackend('good', () => goodReply, 0)
  const gone = new FakeBackend('gone', () => new MillraceError('model_connect', 'gone cannot be reached'), 0)
  const refusing = new FakeBackend('refusing', () => failure('model_auth'), 0)
  expect(await preflight(modelOf(gone, good), never)).toEqual([
    'a backend of gpt-y did not answer, others did: gone cannot be reached',
  ])
  expect(await preflight(modelOf(good, good), never)).toEqual([])
  expect(await codeOf(() => preflight(modelOf(good, refusing), never))).toBe('model_auth')
})

/** Like `transformers serve`, which refuses every field that it does not know. */
const strictServer: Handler = (response, { body }) => {
  const unknown = Object.keys(JSON.parse(body) as object).find((field) =>
    ['logprobs', 'return_token_ids'].includes(field),
  )
  if (unknown === undefined) sendJson(response, chatReply('ready'))
  else sendJson(response, { detail: `Unexpected keys in the request: ${unknown}` }, 422)
}

test('a server that refuses token requests only fails, and the error names the flag', async () => {
  await using server = await ScriptedServer.start(strictServer)
  await using backend = openBackend(server.url)
  await using model = modelOf(backend)
  expect(await preflight(model, never)).toEqual([])
  const error = await failureOf(() => preflight(model, never, { captureTokens: true }))
  expect(error).toMatchObject({ code: 'model_rejected' })
  expect(String(error)).toMatch(/rejects requests for token ids .*leave out --tokens \(captureTokens\).* answered 422/)
  // Without a preflight, a rollout's error names the flag, too.
  const asked = { messages: [], tools: [], sampling: {}, sessionId: 's', captureTokens: true }
  const reply = await model.call(asked, { signal: never })
  expect(reply).toMatchObject({ status: 'failed', error: { message: expect.stringContaining('leave out --tokens') } })
})

test('a server that returns no tokens when asked for them passes with a notice', async () => {
  const ids = new Int32Array(goodReply.usage.output)
  const full = { ...goodReply, tokens: { ids, logprobs: new Float32Array(ids.length) } }
  const half = { ...goodReply, tokens: { ids, logprobs: new Float32Array() } }
  const [good, bare, idsOnly] = [full, goodReply, half].map((reply) => new FakeBackend('b', () => reply, 0)) as [
    FakeBackend,
    FakeBackend,
    FakeBackend,
  ]
  const options = { captureTokens: true }
  expect(await preflight(modelOf(good), never, options)).toEqual([])
  expect(await preflight(modelOf(bare), never)).toEqual([])
  expect(await preflight(modelOf(bare), never, options)).toEqual([
    expect.stringMatching(/^--tokens \(captureTokens\): the first reply of gpt-y came without token ids/),
  ])
  expect(await preflight(modelOf(good, bare, idsOnly), never, options)).toEqual([
    expect.stringContaining('2 of the first 3 replies of gpt-y came without'),
  ])
})

test('the error for a backend that never answers gives the tries and a workaround', async () => {
  await using server = await ScriptedServer.start(() => {})
  await using backend = openBackend(server.url)
  await using model = modelOf(backend)
  const error = await failureOf(() => preflight(model, never, { tryTimeoutMs: 50 }))
  expect(error).toMatchObject({ code: 'model_timeout' })
  expect(String(error)).toMatch(/in 3 tries of up to 0\.05 s each\. Is the model loaded\? .*--no-preflight/)
})

test('an abort ends the check', async () => {
  await using server = await ScriptedServer.start(() => {})
  await using backend = openBackend(server.url)
  await using model = modelOf(backend)
  const controller = new AbortController()
  const pending = failureOf(() => preflight(model, controller.signal))
  await server.received(1)
  controller.abort(new Error('enough'))
  expect(String(await pending)).toContain('enough')
  await server.requests[0]?.closed
})
