import { expect, test } from 'vitest'
import { failureOf } from '../../test/support/inference/code-of.ts'
import { proxyFor } from './proxy.ts'

const proxies = { HTTP_PROXY: 'http://plain:1/', HTTPS_PROXY: 'http://secure:2/' }
const find = (url: string, env: Record<string, string> = {}): string | undefined => proxyFor(new URL(url), env)

test('the scheme of the URL chooses the variable, and lower case takes precedence', () => {
  expect(find('http://a.test', proxies)).toBe('http://plain:1/')
  expect(find('https://a.test', proxies)).toBe('http://secure:2/')
  expect(find('https://a.test', { ...proxies, https_proxy: 'http://lower:3/' })).toBe('http://lower:3/')
  expect(find('https://a.test')).toBeUndefined()
})

test('a loopback address is never reached through a proxy', () => {
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
  expect(find('https://a.test/v1', { ...proxies, NO_PROXY: noProxy })).toBe(excepted ? undefined : 'http://secure:2/')
})

test.each([
  ['10.0.0.0/8', 'http://10.1.2.3:8000', true],
  ['10.0.0.0/8', 'http://11.1.2.3:8000', false],
  ['10.1.2.3', 'http://10.1.2.3:8000', true],
  ['10.1.2.3:8000', 'http://10.1.2.3:8000', true],
  ['10.1.2.3:80', 'http://10.1.2.3:8000', false],
  ['fd00::/8', 'http://[fd00::1]:8000', true],
  ['fd00::1', 'http://[fd00::1]:8000', true],
  ['[fd00::1]:8000', 'http://[fd00::1]:8000', true],
  ['[fd00::1]:80', 'http://[fd00::1]:8000', false],
  ['fd00::2', 'http://[fd00::1]:8000', false],
  ['10.0.0.0/33', 'http://10.1.2.3:8000', false],
  ['10.0.0.0/', 'http://10.1.2.3:8000', false],
  ['10.0.0.0/8', 'http://10.test:8000', false],
])('NO_PROXY=%s of %s', (noProxy, url, excepted) => {
  expect(find(url, { ...proxies, NO_PROXY: noProxy })).toBe(excepted ? undefined : 'http://plain:1/')
})

test('the scheme of a proxy is optional, and a value that is not a proxy URL is refused', async () => {
  expect(find('http://a.test', { HTTP_PROXY: 'proxy.test:3128' })).toBe('http://proxy.test:3128/')
  expect(find('http://a.test', { http_proxy: '10.0.0.1:3128' })).toBe('http://10.0.0.1:3128/')
  for (const value of ['ftp://user:secret@proxy.test', 'socks5://proxy.test', 'http://', 'a b']) {
    const error = await failureOf(() => find('https://a.test', { HTTPS_PROXY: value }))
    expect(error).toMatchObject({ code: 'config_invalid' })
    expect(String(error)).toContain('HTTPS_PROXY is not a valid HTTP proxy URL')
    expect(String(error)).not.toContain('secret')
  }
})
