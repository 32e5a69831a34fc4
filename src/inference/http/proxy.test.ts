import { expect, test } from 'vitest'
import { proxyFor } from './proxy.ts'

const proxies = { HTTP_PROXY: 'http://plain:1', HTTPS_PROXY: 'http://secure:2' }
const find = (url: string, env: Record<string, string> = {}): string | undefined => proxyFor(new URL(url), env)

test('the scheme chooses the variable, and lower case wins', () => {
  expect(find('http://a.test', proxies)).toBe('http://plain:1')
  expect(find('https://a.test', proxies)).toBe('http://secure:2')
  expect(find('https://a.test', { ...proxies, https_proxy: 'http://lower:3' })).toBe('http://lower:3')
  expect(find('https://a.test')).toBeUndefined()
})

test('this machine is never behind a proxy', () => {
  for (const host of ['localhost', '127.0.0.1', '127.1.2.3', '[::1]', 'gpu.localhost']) {
    expect(find(`http://${host}:8000`, proxies), host).toBeUndefined()
  }
})

test.each([
  ['*', true],
  ['a.test', true],
  ['.test', true],
  ['*.test', true],
  ['b.test, a.test', true],
  ['A.TEST', true],
  ['a.test:443', true],
  ['a.test:8443', false],
  ['b.test', false],
  ['est', false],
])('NO_PROXY=%s', (noProxy, excepted) => {
  expect(find('https://a.test/v1', { ...proxies, NO_PROXY: noProxy })).toBe(excepted ? undefined : 'http://secure:2')
})
