import { describe, expect, test } from 'vitest'
import { Redaction } from '../../kit/index.ts'
import { reportedError, readReportedError } from './reported-error.ts'

const source = {
  backend: 'b',
  url: 'http://b/v1/chat/completions',
  model: 'gpt-x',
  apiKeyEnv: 'MY_KEY',
  redaction: new Redaction(['sk-canary-0123456789']),
}
const errorOf = (status: number, body: unknown, retryAfterMs?: number) =>
  reportedError(source, { status, reported: readReportedError(body), retryAfterMs })
const codeOf = (status: number, body: unknown = ''): string => errorOf(status, body).code

describe('error code by HTTP status', () => {
  test.each([
    [301, 'model_rejected'],
    [400, 'model_rejected'],
    [401, 'model_auth'],
    [402, 'model_rejected'],
    [403, 'model_auth'],
    [404, 'model_not_found'],
    [408, 'model_timeout'],
    [409, 'model_conflict'],
    [413, 'model_rejected'],
    [422, 'model_rejected'],
    [424, 'model_server_error'],
    [499, 'model_server_error'],
    [429, 'model_rate_limited'],
    [500, 'model_server_error'],
    [501, 'model_server_error'],
    [502, 'model_overloaded'],
    [503, 'model_overloaded'],
    [504, 'model_timeout'],
    [520, 'model_overloaded'],
    [521, 'model_overloaded'],
    [522, 'model_overloaded'],
    [523, 'model_overloaded'],
    [524, 'model_timeout'],
    [525, 'model_server_error'],
    [529, 'model_overloaded'],
    [530, 'model_overloaded'],
  ])('%i', (status, code) => {
    expect(codeOf(status)).toBe(code)
  })
})

describe('a conversation that is too long', () => {
  test.each([
    ['OpenAI', 400, { error: { code: 'context_length_exceeded', message: 'x' } }],
    ['OpenAI Responses', 400, { error: { message: 'Your input exceeds the context window of this model.' } }],
    [
      'vLLM',
      400,
      {
        object: 'error',
        message: "This model's maximum context length is 4096 tokens. However, you requested 5000",
        type: 'BadRequestError',
        code: 400,
      },
    ],
    [
      'vLLM, long prompt',
      400,
      { error: { message: 'The decoder prompt (length 9000) is longer than the maximum model length of 8192.' } },
    ],
    ['SGLang', 400, { message: "The input (5000 tokens) is longer than the model's context length (4096 tokens)." }],
    [
      'Anthropic',
      400,
      { error: { type: 'invalid_request_error', message: 'prompt is too long: 210000 tokens > 200000 maximum' } },
    ],
    [
      'Gemini',
      400,
      { error: { message: 'The input token count (9) exceeds the maximum number of tokens allowed (8).' } },
    ],
    [
      'llama.cpp',
      400,
      {
        error: {
          code: 400,
          type: 'exceed_context_size_error',
          message: 'the request exceeds the available context size',
        },
      },
    ],
    [
      'Gemini, whose errors come in a list',
      400,
      [
        {
          error: { code: 400, message: 'The input token count exceeds the maximum number of tokens allowed 1048576.' },
        },
      ],
    ],
    [
      'SGLang, found by its scheduler',
      400,
      { message: 'Input length (5000 tokens) exceeds the maximum allowed length (4090 tokens). Use a shorter input.' },
    ],
    [
      'LM Studio',
      400,
      { error: 'The number of tokens to keep from the initial prompt is greater than the context length.' },
    ],
    ['Ollama', 400, { error: { message: 'the input length exceeds the context length' } }],
    ['Moonshot', 400, { error: { message: 'Invalid request: Your request exceeded model token limit: 131072' } }],
    ['Z.ai', 400, { error: { code: '1261', message: 'Prompt exceeds max length' } }],
    ['DashScope', 400, { error: { message: 'Range of input length should be [1, 129024]' } }],
    [
      'what OpenRouter was told by somebody else',
      400,
      {
        error: {
          message: 'Provider returned error',
          code: 400,
          metadata: { raw: '{"error":{"message":"This model\'s maximum context length is 8192"}}', provider_name: 'X' },
        },
      },
    ],
    ['TGI', 422, { error: 'Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096' }],
    ['Groq', 413, { error: { message: 'Please reduce the length of the messages or completion.' } }],
  ])('%s', (_server, status, body) => {
    expect(codeOf(status, body)).toBe('context_length')
  })

  test('is not reported for other errors', () => {
    expect(codeOf(400, { error: { message: 'temperature must be at most 2' } })).toBe('model_rejected')
    // Something else is too long.
    const message = "'tools[0].function.description' exceeds the maximum allowed length of 1024"
    expect(codeOf(400, { error: { message } })).toBe('model_rejected')
    expect(codeOf(500, { error: { message: 'maximum context length' } })).toBe('model_server_error')
  })
})

test('an account without quota is not asked again', () => {
  const error = errorOf(429, { error: { code: 'insufficient_quota', message: 'You exceeded your current quota' } })
  expect(error.code).toBe('model_rejected')
  expect(error.retryable).toBe(false)
  expect(error.message).toContain('add credit')
})

test.each([
  ['Moonshot', { error: { type: 'exceeded_current_quota_error', message: 'Your account has no balance' } }],
  ['OpenAI', { error: { type: 'billing_not_active', code: 'billing_not_active', message: 'Check your billing' } }],
])('an account without credit gets advice to add credit: %s', (_server, body) => {
  expect(errorOf(429, body)).toMatchObject({ code: 'model_rejected', retryable: false })
  expect(errorOf(429, body).message).toContain('add credit')
})

test('a model that spent all tokens on thinking gets advice to allow more tokens', () => {
  const message = 'Could not finish the message because max_tokens or model output limit was reached.'
  const error = errorOf(400, { error: { message, type: 'invalid_request_error' } })
  expect(error.code).toBe('model_rejected')
  expect(error.message).toContain('allow more tokens (maxTokens)')
})

test('the error of a provider behind the server is quoted', () => {
  const told = (metadata: unknown) => readReportedError({ error: { message: 'Provider returned error', metadata } })
  expect(told({ raw: 'temperature is too high' }).message).toBe('Provider returned error: temperature is too high')
  expect(told({ raw: { a: 1 } }).message).toBe('Provider returned error: {"a":1}')
  for (const metadata of [null, {}, { raw: null }, { raw: '' }, 'x']) {
    expect(told(metadata).message).toBe('Provider returned error')
  }
})

test('a quota that recovers is a rate limit, not an empty account', () => {
  const message = 'You exceeded your current quota, please check your plan. Please retry in 34.07s.'
  const error = errorOf(429, [{ error: { code: 429, message, status: 'RESOURCE_EXHAUSTED' } }])
  expect(error.code).toBe('model_rate_limited')
  expect(error.data).toMatchObject({ said: message, saidCode: 429 })
  expect(codeOf(429, { error: { message: 'You exceeded your current quota.' } })).toBe('model_rejected')
})

test('the message gives the place, the problem and the next step; the data is plain', () => {
  const error = errorOf(401, { error: { message: 'Incorrect API key provided' } })
  expect(error.rawMessage).toBe(
    "http://b/v1/chat/completions answered 401: Incorrect API key provided. Check the key in MY_KEY, or name another variable: --api-key-env of eval and serve (apiKeyEnv in the model's config).",
  )
  expect(errorOf(429, '', 1500).data).toEqual({ backend: 'b', status: 429, retryAfterMs: 1500 })
  expect(errorOf(404, 'no').message).toContain('"gpt-x"')
  expect(errorOf(500, 'x'.repeat(5000)).message.length).toBeLessThan(600)
})

test('the data holds the words of the server, up to a limit', () => {
  const body = { error: { message: 'no such tool', type: 'invalid_request_error', code: 'bad_tool', param: 'tools' } }
  expect(errorOf(400, body).data).toEqual({
    backend: 'b',
    status: 400,
    said: 'no such tool',
    saidType: 'invalid_request_error',
    saidCode: 'bad_tool',
    param: 'tools',
  })
  const detailed = { error: { message: 'gone', type: 'not_found_error', details: { error_code: 'thread_not_found' } } }
  expect(errorOf(404, detailed).data).toMatchObject({ said: 'gone', saidCode: 'thread_not_found' })
  expect(errorOf(400, { message: 'm', code: 400, type: null }).data).toMatchObject({ said: 'm', saidCode: 400 })
  expect(errorOf(400, { message: 'm', type: null }).data).not.toHaveProperty('saidType')
  const { said, saidType } = errorOf(500, { error: { message: 'x'.repeat(50_000), type: 'y'.repeat(50_000) } }).data
  expect(said).toHaveLength(4096)
  expect(saidType).toHaveLength(300)
})

test('error formats of servers', () => {
  expect(readReportedError({ detail: 'Not Found' })).toMatchObject({ message: 'Not Found' })
  expect(readReportedError({ detail: [{ loc: ['body'], msg: 'field required' }] }).message).toContain('field required')
  expect(readReportedError({ error: 'flat' })).toMatchObject({ message: 'flat' })
  expect(readReportedError('<html>bad gateway</html>').message).toContain('bad gateway')
  expect(readReportedError([{ error: { message: 'in a list', status: 'X' } }]).message).toBe('in a list')
  expect(readReportedError(null).message).toBe('')
  expect(readReportedError([]).message).toBe('')
})

describe('a server that repeats the key in its error', () => {
  const key = 'sk-canary-0123456789'

  test('is quoted without the key in every field', () => {
    const { message, data } = errorOf(400, { error: { message: key, type: key, code: key, param: `headers.${key}` } })
    const mark = '[redacted]'
    expect(data).toMatchObject({ said: mark, saidType: mark, saidCode: mark, param: `headers.${mark}` })
    expect(JSON.stringify([message, data])).not.toContain(key)
  })

  test.each([295, 4090])('leaves no part of the key where the message is cut after %i characters', (length) => {
    const { message, data } = errorOf(400, `${'x'.repeat(length)}${key} and more`)
    expect(JSON.stringify([message, data])).not.toContain(key.slice(0, 4))
  })

  test('is quoted without the key if the error is an object', () => {
    const { message, data } = errorOf(422, { detail: [{ loc: ['header', key], input: { [key]: `Bearer ${key}` } }] })
    expect(JSON.stringify([message, data])).not.toContain(key)
    expect(data['said']).toContain('"loc":["header","[redacted]"]')
  })
})
