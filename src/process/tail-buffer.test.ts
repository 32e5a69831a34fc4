import { expect, test } from 'vitest'
import { TailBuffer } from './tail-buffer.ts'

function tailOf(capacity: number, ...chunks: string[]): string {
  const tail = new TailBuffer(capacity)
  for (const chunk of chunks) tail.push(Buffer.from(chunk))
  return tail.toString()
}

test('text within the limit is kept unchanged', () => {
  expect(tailOf(10)).toBe('')
  expect(tailOf(10, 'one\n', 'two')).toBe('one\ntwo')
})

test('text over the limit loses its beginning, up to a whole line', () => {
  expect(tailOf(10, 'first\nsecond\nthird\n')).toBe('third\n')
  expect(tailOf(10, 'first\n', 'sec', 'ond\n', 'third\n')).toBe('third\n')
  expect(tailOf(8, 'abcdefghijkl')).toBe('efghijkl')
  expect(tailOf(8, 'abcdefghijk\n')).toBe('fghijk\n'.padStart(8, 'e'))
})

test('the buffer holds the end of the text however the text is divided', () => {
  const text = Array.from({ length: 300 }, (_, index) => String.fromCharCode(97 + (index % 26))).join('')
  for (let size = 1; size < 40; size += 1) {
    for (const length of [15, 16, 17, 100, 300]) {
      const written = text.slice(0, length)
      expect(tailOf(16, ...(written.match(new RegExp(`.{1,${size}}`, 'g')) ?? []))).toBe(written.slice(-16))
    }
  }
})
