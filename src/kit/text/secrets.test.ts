import { expect, test } from 'vitest'
import { headerSecrets, Redaction, urlSecrets, withoutUrlSecrets } from './secrets.ts'

const secret = 'a "b"\n& c/d+é'
const redaction = new Redaction([secret])

test.each([
  ['as it is', secret],
  ['in JSON', JSON.stringify(secret).slice(1, -1)],
  ['in JSON within JSON', JSON.stringify(JSON.stringify(secret)).slice(3, -3)],
  ['in JSON as a server in Python writes it', 'a \\"b\\"\\n& c/d+\\u00e9'],
  ['in JSON with slashes escaped', 'a \\"b\\"\\n& c\\/d+\\u00E9'],
  ['in a URL', encodeURIComponent(secret)],
  ['in a URL with small letters', encodeURIComponent(secret).toLowerCase()],
  ['in a URL that keeps slashes', encodeURIComponent(secret).replace('%2F', '/')],
  ['in a form', new URLSearchParams({ s: secret }).toString().slice(2)],
  ['in a URL within a URL', encodeURIComponent(encodeURIComponent(secret))],
  ['in JSON within a URL', encodeURIComponent(JSON.stringify(secret).slice(1, -1))],
  ['in a page', 'a &quot;b&quot;\n&amp; c&#x2F;d+&eacute;'],
])('finds a secret %s', (_how, written) => {
  expect(redaction.text(`x ${written} y`)).toBe('x [redacted] y')
})

test.each(['', 'u', 'us', 'user:'])('finds a secret in base64 after %j', (before) => {
  for (const written of [secret, JSON.stringify({ secret }), new URLSearchParams({ secret: 'x1x/y+z' }).toString()]) {
    const text = Buffer.from(`${before}${written}, and more`)
    for (const encoding of ['base64', 'base64url'] as const) {
      const clean = new Redaction([secret, 'x1x/y+z']).text(text.toString(encoding))
      expect(clean).toContain('[redacted]')
      expect(Buffer.from(clean.replace('[redacted]', ''), encoding).toString()).not.toMatch(/b\\?"|y/)
    }
  }
})

test('the longest secret is replaced first, and secrets under six characters are ignored', () => {
  const several = new Redaction(['abcdef', 'abcdef-ghi', 'short', ''])
  expect(several.text('abcdef-ghi abcdef short')).toBe('[redacted] [redacted] short')
  expect(new Redaction([]).text('all of it', 3)).toBe('all')
})

test('a secret at the cut of a shortened text is replaced completely', () => {
  const key = new Redaction(['abcdefghij'])
  const text = 'see abcdefghij and abcdefghij'
  expect(key.text(text, 3)).toBe('see')
  expect(key.text(text, 6)).toBe('see [redacted]')
  expect(key.text(text, 16)).toBe('see [redacted] a')
  expect(key.text(text, 100)).toBe('see [redacted] and [redacted]')
})

test('an error without secrets is returned unchanged', () => {
  const key = new Redaction(['abcdef123'])
  const harmless = new Error('no luck')
  expect(key.error(harmless)).toBe(harmless)
  const hidden = key.error(Object.assign(new Error('failed'), { data: { text: 'abcdef123 is wrong' } }))
  expect(JSON.stringify(hidden)).not.toContain('abcdef123')
  expect(hidden.message).toBe('failed')
  const circle: Error & { self?: Error } = new Error('round')
  circle.self = circle
  expect(key.error(circle)).toEqual(new Error('round'))
  expect(key.error(circle)).not.toBe(circle)
  expect(String(key.error(new Error('abcdef123 failed', { cause: new Error('abcdef123') })))).toBe(
    'Error: [redacted] failed',
  )
})

test('a header is secret with its scheme, without it, and in decoded Basic form', () => {
  const token = Buffer.from('user:pass:word').toString('base64')
  expect(headerSecrets('abc')).toEqual(['abc'])
  expect(headerSecrets('Bearer abc')).toEqual(['Bearer abc', 'abc'])
  expect(headerSecrets(`Basic ${token}`)).toEqual([`Basic ${token}`, token, 'user:pass:word', 'pass:word'])
})

test.each(['\\', '%5C', '%25', '&amp;', '&', '%', '/', 'ab'])('a long run of %s takes linear time', (piece) => {
  const awkward = new Redaction(['\\\\\\\\xyz', 'a\\b\\c\\d\\', '/-+"&=%%%abc', '&&&&&&;', 'ababababab'])
  const cpuOf = (text: string): number => {
    const start = process.cpuUsage()
    awkward.text(text)
    return process.cpuUsage(start).user
  }
  // A pattern that tries all ways to divide a text takes a hundred thousand times as long.
  expect(cpuOf(piece.repeat(20_000))).toBeLessThan(2_000 * Math.max(1_000, cpuOf('x y '.repeat(20_000))))
})

test('a secret with backslashes is found, escaped or not', () => {
  for (const path of ['C:\\Users\\me', 'abcdef\\', '\\\\host\\share']) {
    for (const written of [path, JSON.stringify(path).slice(1, -1), encodeURIComponent(path)]) {
      expect(new Redaction([path]).text(`x ${written} y`)).toBe('x [redacted] y')
    }
  }
})

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
  '%s holds no secret',
  (text) => {
    expect(withoutUrlSecrets(text, '*')).toBe(text)
  },
)

test('the credentials of a URL are secret in decoded form and as a Basic header', () => {
  const header = Buffer.from('me:p w').toString('base64')
  expect(urlSecrets(new URL('http://me:p%20w@x.test/a?q=b'))).toEqual(['me', 'p w', header, 'b'])
  expect(urlSecrets(new URL('http://x.test/a?api-version=2026-01-01'))).toEqual([])
  expect(urlSecrets(new URL('http://me:50%@x.test'))[1]).toBe('50%')
})
