import { describe, expect, test } from 'vitest'
import { contentOf, maxImageChars, maxOutputChars } from './_tool-output.ts'

describe('contentOf', () => {
  test.each([
    ['text', 'text'],
    [undefined, ''],
    [null, 'null'],
    [7, '7'],
    [{ a: [1] }, '{"a":[1]}'],
    [[], '[]'],
    [[{ type: 'text' }], '[{"type":"text"}]'],
  ])('shows %o as %s', (output, content) => {
    expect(contentOf(output)).toBe(content)
  })

  test('leaves content parts as they are', () => {
    const parts = [
      { type: 'text', text: 'see' },
      { type: 'image_url', image_url: { url: 'data:image/png;base64,AAAA' } },
    ]
    expect(contentOf(parts)).toBe(parts)
  })

  test('cuts what is too long and says how much', () => {
    const content = contentOf('x'.repeat(maxOutputChars + 10)) as string
    expect(content.slice(maxOutputChars)).toBe(`\n[10 of ${maxOutputChars + 10} characters were cut off]`)
    expect(contentOf('x'.repeat(maxOutputChars))).toHaveLength(maxOutputChars)
  })

  test('does not cut a character in two', () => {
    const content = contentOf(`${'x'.repeat(maxOutputChars - 1)}😀`) as string
    expect(content.isWellFormed()).toBe(true)
    expect(content).toContain('[2 of ')
  })

  test('the parts of one output share one limit', () => {
    const text = 'x'.repeat(maxOutputChars - 1)
    const parts = contentOf([
      { type: 'text', text },
      { type: 'text', text: 'abc' },
    ])
    expect(parts).toEqual([
      { type: 'text', text },
      { type: 'text', text: 'a\n[2 of 3 characters were cut off]' },
    ])
  })

  test('leaves out an image that no server would take', () => {
    const [part] = contentOf([{ type: 'image_url', image_url: { url: 'x'.repeat(maxImageChars + 1) } }])
    expect(part).toEqual({ type: 'text', text: expect.stringContaining('too large') })
  })

  test('refuses what is not JSON', () => {
    expect(() => contentOf(1n)).toThrow(/BigInt/)
    const cycle: { self?: unknown } = {}
    cycle.self = cycle
    expect(() => contentOf(cycle)).toThrow(/circular/)
  })
})
