import { expect, test } from 'vitest'
import { estimatedTokens } from './estimated-tokens.ts'

test('an image counts as one, however much of it is in its address', () => {
  const text = { type: 'text', text: 'x'.repeat(400) } as const
  const image = (bytes: number) =>
    ({ type: 'image_url', image_url: { url: `data:image/png;base64,${'A'.repeat(bytes)}` } }) as const
  const tokens = (bytes: number): number => estimatedTokens([{ role: 'user', content: [text, image(bytes)] }])
  expect(tokens(1_000_000)).toBe(tokens(10))
  expect(tokens(10)).toBeGreaterThan(1_100)
  expect(tokens(10)).toBeLessThan(1_200)
})
