import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import { inspect } from 'node:util'
import { describe, expect, test } from 'vitest'
import { failureOf } from '../../test/support/inference/code-of.ts'
import { CollectingSink } from '../../test/support/inference/collecting-sink.ts'
import { ask, openBackend } from '../../test/support/inference/open-backend.ts'
import { chatChunk, chatReply, ScriptedServer, sendJson } from '../../test/support/inference/scripted-server.ts'
import { backendRedaction, backendSecrets, shownUrl } from './config.ts'

test('a backend is named after its engine, its host, or the provider of its API', async () => {
  for (const [url, config, provider] of [
    ['http://gpu-1:8000/v1', { engine: 'vllm' }, 'vllm'],
    ['http://gpu-1:8000/v1', { api: 'responses' }, 'openai'],
    ['http://gpu-1:8000/v1', { api: 'messages' }, 'anthropic'],
    ['https://api.anthropic.com/v1', {}, 'anthropic'],
    ['https://ours.openai.azure.com/v1', {}, 'azure.ai.openai'],
    ['https://api.mistral.ai/v1', {}, 'mistral_ai'],
  ] as const) {
    await using backend = openBackend(url, config)
    expect(backend.provider).toBe(provider)
  }
})

const key = 'sk-canary-0123456789'
const env = { OPENAI_API_KEY: key }
const config = {
  url: 'http://gpu-1:8000/v1?sig=in-the-query',
  apiKeyEnv: 'OPENAI_API_KEY',
  headers: { 'x-team': 'blue-team' },
}

describe('the secrets of a backend', () => {
  test('are its key, its headers and the query of its url', () => {
    expect(backendSecrets(config, env)).toEqual([key, 'blue-team', 'in-the-query'])
    expect(backendSecrets({ ...config, url: 'none' }, {})).toEqual(['', 'blue-team'])
  })

  test('include the password of the proxy before it', () => {
    const redaction = backendRedaction(config, { ...env, http_proxy: 'http://me:sesame-open@proxy:3128' }, {})
    const header = Buffer.from('me:sesame-open').toString('base64')
    expect(redaction.text(`${key} blue-team in-the-query sesame-open ${header}`)).toBe(
      '[redacted] [redacted] [redacted] [redacted] [redacted]',
    )
  })

  test('include values filled in from variables, except for its url and model names', () => {
    const secrets = ['gpu-1:8000', 'GPU-1', 'Qwen/Qwen3-8B', 'http://gpu-1:8000/hidden-path/v1/', 'hidden-value', '']
    const redaction = backendRedaction(config, {}, { secrets, names: ['Qwen/Qwen3-8B'] })
    const text = 'Qwen/Qwen3-8B at http://gpu-1:8000/hidden-path/v1/x with hidden-value'
    expect(redaction.text(text)).toBe('Qwen/Qwen3-8B at http://gpu-1:8000[redacted]/x with [redacted]')
  })
})

test.each([
  ['http://me:pass@host:1/v1?key=x', 'http://host:1/v1'],
  ['me:pass@host/v1?key=x', 'host/v1'],
  ['http://host/a-secret/v1', 'http://host/[redacted]/v1'],
  ['http://host/v1@2', 'http://host/v1@2'],
])('%s is shown as %s', (url, shown) => {
  expect(shownUrl(url, ['a-secret', 'host'])).toBe(shown)
})

test('a secret in the path of a url is not in the name of the backend or its errors', async () => {
  await using server = await ScriptedServer.start((response, { path }) => sendJson(response, { error: path }, 500))
  await using backend = openBackend(`${server.origin}/a-secret/v1`, {
    options: { secrets: ['a-secret', server.origin] },
  })
  expect(backend.name).toBe(`${new URL(server.origin).host}/[redacted]/v1`)
  expect(String(await failureOf(() => backend.send(ask())))).toContain(
    `${server.origin}/[redacted]/v1/chat/completions answered 500: /[redacted]/v1/chat/completions.`,
  )
})

test('a sampled reply is not redacted', async () => {
  await using server = await ScriptedServer.start((response, { body }) => {
    if (!body.includes('"stream":true')) {
      sendJson(response, chatReply(`the key is ${key}`))
      return
    }
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    response.end(`${chatChunk({ content: 'the key is ' })}${chatChunk({ content: key }, 'stop')}data: [DONE]\n\n`)
  })
  await using backend = openBackend(server.url, { env })
  const sink = new CollectingSink()
  const replies = [await backend.send(ask()), await backend.send(ask({ stream: true, sink }))]
  expect(replies.map(({ message }) => message.content)).toEqual([`the key is ${key}`, `the key is ${key}`])
  expect(JSON.stringify(sink.events)).toContain(key)
})

test('bytes of an invalid HTTP response are not in the error or its cause', async () => {
  const server = createServer((socket) => {
    socket.on('error', () => {})
    socket.once('data', (request) => socket.end(Buffer.concat([Buffer.from('HTTP/1.1 nonsense '), request])))
  })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  await using backend = openBackend(`http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`, { env })
  const failure = await failureOf(() => backend.send(ask()))
  server.close()
  expect(failure).toMatchObject({ code: 'model_connect' })
  expect(inspect(failure, { depth: 9, maxStringLength: null })).not.toContain(key)
})
