import { expect, test } from 'vitest'
import { checkedPublicUrl } from './gateway-config.ts'

test.each([
  ['https://gateway.example.com', 'https://gateway.example.com'],
  ['https://gateway.example.com/', 'https://gateway.example.com'],
  ['http://10.0.0.1:8787/models//', 'http://10.0.0.1:8787/models'],
])('%s', (text, url) => expect(checkedPublicUrl(text)).toBe(url))

test.each(['', 'gateway.example.com', 'gateway:8787', 'ftp://a', 'https://a:b@c', 'https://a?b', 'https://a/#'])(
  '%s is refused',
  (text) => expect(() => checkedPublicUrl(text)).toThrow('is not a valid public URL'),
)

test('the error for a public url does not repeat its password', () => {
  expect(() => checkedPublicUrl('https://me:hunter2@gateway.example.com')).toThrow(
    /the given value is not a valid public URL(?!.*hunter2)/,
  )
})
