import { expect, test } from 'vitest'
import { redact } from './redact.ts'

test('fields with secret names, in any spelling, and all headers are redacted', () => {
  const { value, paths } = redact({
    apiKey: 'sk-1',
    api_key: 'sk-2',
    models: [{ headers: { Authorization: 'Bearer x', 'X-Api-Key': 'k', accept: 'json', 'x-none': '' } }],
    credentials: { user: 'u', pass: 'p' },
    clientSecret: 's',
    dbPassword: 'p',
    accessToken: 't',
  })
  expect(value).toEqual({
    apiKey: '[redacted]',
    api_key: '[redacted]',
    models: [
      { headers: { Authorization: '[redacted]', 'X-Api-Key': '[redacted]', accept: '[redacted]', 'x-none': '' } },
    ],
    credentials: '[redacted]',
    clientSecret: '[redacted]',
    dbPassword: '[redacted]',
    accessToken: '[redacted]',
  })
  expect(paths).toContain('models[0].headers.Authorization')
  expect(paths).toHaveLength(9)
})

test('fields whose names only resemble secret ones are kept', () => {
  const config = {
    maxTokens: 100,
    tokensPerMinute: 5,
    captureTokens: true,
    token: 3,
    tokenizer: 'gpt2',
    apiKeyEnv: 'OPENAI_API_KEY',
    keyFile: '/etc/key.pem',
    monkey: 'business',
    passThreshold: 1,
    secret: null,
  }
  expect(redact(config)).toEqual({ value: config, paths: [] })
})

test('given values are redacted within other text, and the credentials and queries of URLs', () => {
  const config = {
    url: 'https://me:hunter22@proxy:8080/v1?q=a@b',
    arguments: ['--url=postgres://me:hunter22@host/tasks', 'see http://host/v1?key=verysecret123'],
    note: 'call with sk-abcdef please',
    list: ['sk-abcdef', 'a', 'ab'],
    mail: 'me@example.org',
  }
  expect(redact(config, ['sk-abcdef', 'a', ''])).toEqual({
    value: {
      url: 'https://[redacted]@proxy:8080/v1?q=[redacted]',
      arguments: ['--url=postgres://[redacted]@host/tasks', 'see http://host/v1?key=[redacted]'],
      note: 'call with [redacted] please',
      list: ['[redacted]', '[redacted]', 'ab'],
      mail: 'me@example.org',
    },
    paths: ['url', 'arguments[0]', 'arguments[1]', 'note', 'list[0]', 'list[1]'],
  })
})
