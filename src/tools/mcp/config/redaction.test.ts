import { expect, test } from 'vitest'
import { Redaction } from './redaction.ts'

test('takes headers, what stands in the URL and the environment out of texts and errors', () => {
  const web = new Redaction({
    url: 'https://x.test/mcp?apiKey=in-the-url',
    headers: { authorization: 'Bearer abcdef123' },
  })
  expect(web.text('abcdef123 Bearer abcdef123 in-the-url')).toBe('[redacted] [redacted] [redacted]')
  // Nobody can tell from its name what a variable is for.
  const env = { SEARCH_API_KEY: 'sk-12345', DATABASE_URL: 'postgres://me:pw@db', DEBUG: 'true' }
  const local = new Redaction({ command: 'x', env })
  expect(local.text('sk-12345 at postgres://me:pw@db is true')).toBe('[redacted] at [redacted] is true')
})

test('a secret is known as a URL has it and as JSON does', () => {
  const secret = 'a "b" & c/d'
  const redaction = new Redaction({ command: 'x', env: { S: secret } })
  expect(redaction.text(`${secret}, ?s=${encodeURIComponent(secret)}, ${JSON.stringify({ secret })}`)).toBe(
    '[redacted], ?s=[redacted], {"secret":"[redacted]"}',
  )
})

test('an error with nothing secret in it stays what it is', () => {
  const redaction = new Redaction({ url: 'https://x.test', headers: { 'x-key': 'abcdef123' } })
  const harmless = new Error('no luck')
  expect(redaction.error(harmless)).toBe(harmless)
  const hidden = redaction.error(Object.assign(new Error('failed'), { data: { text: 'abcdef123 is wrong' } }))
  expect(JSON.stringify(hidden)).not.toContain('abcdef123')
  expect(hidden.message).toBe('failed')
})
