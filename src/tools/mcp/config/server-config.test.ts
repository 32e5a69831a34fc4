import { expect, test } from 'vitest'
import { redactionOf } from './server-config.ts'

test('headers, URL secrets and variables are removed from texts and errors', () => {
  const web = redactionOf({
    url: 'https://x.test/mcp?apiKey=in-the-url',
    headers: { authorization: 'Bearer abcdef123' },
  })
  expect(web.text('abcdef123 Bearer abcdef123 in-the-url')).toBe('[redacted] [redacted] [redacted]')
  // Nobody can tell from its name what a variable is for.
  const env = { SEARCH_API_KEY: 'sk-12345', DATABASE_URL: 'postgres://me:pw@db', DEBUG: 'true' }
  const local = redactionOf({ command: 'x', env })
  expect(local.text('sk-12345 at postgres://me:pw@db is true')).toBe('[redacted] at [redacted] is true')
})

test('a secret is found in URL-encoded and in JSON form', () => {
  const secret = 'a "b" & c/d'
  const redaction = redactionOf({ command: 'x', env: { S: secret } })
  expect(redaction.text(`${secret}, ?s=${encodeURIComponent(secret)}, ${JSON.stringify({ secret })}`)).toBe(
    '[redacted], ?s=[redacted], {"secret":"[redacted]"}',
  )
})
