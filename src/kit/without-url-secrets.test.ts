import { expect, test } from 'vitest'
import { urlSecrets, withoutUrlSecrets } from './without-url-secrets.ts'

test.each([
  ['http://host/v1?key=sk-verysecret123', 'http://host/v1?key=*'],
  ['--url=postgres://user:word@host:5432/tasks', '--url=postgres://*@host:5432/tasks'],
  ['connect to redis://:w@rd@host first', 'connect to redis://*@host first'],
  ['{"url":"https://host/?a=1&b=2&c","mail":"me@host"}', '{"url":"https://host/?a=*&b=*&c","mail":"me@host"}'],
  ['http://one,http://user:word@two?sig=abc#part', 'http://one,http://*@two?sig=*#part'],
  ['https://host/deployments?api-version=2026-01-01&code=x', 'https://host/deployments?api-version=2026-01-01&code=*'],
])('%s', (text, clean) => {
  expect(withoutUrlSecrets(text, '*')).toBe(clean)
  expect(withoutUrlSecrets(clean, '*')).toBe(clean)
})

test.each(['https://host:80/path@1?flag', 'me@example.org?a=b', 'is this a://b? Perhaps=so'])(
  'nothing is secret in %s',
  (text) => {
    expect(withoutUrlSecrets(text, '*')).toBe(text)
  },
)

test('the credentials of a URL are secret as they are meant and as the header that they become', () => {
  const header = Buffer.from('me:p w').toString('base64')
  expect(urlSecrets(new URL('http://me:p%20w@x.test/a?q=b'))).toEqual(['me', 'p w', header, 'b'])
  expect(urlSecrets(new URL('http://x.test/a?api-version=2026-01-01'))).toEqual([])
  expect(urlSecrets(new URL('http://me:50%@x.test'))[1]).toBe('50%')
})
