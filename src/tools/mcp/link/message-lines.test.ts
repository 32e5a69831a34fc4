import { expect, test } from 'vitest'
import { MessageLines } from './_message-lines.ts'

function splitter(maxBytes = 1_000) {
  const lines: string[] = []
  const split = new MessageLines({
    maxBytes,
    onLine: (line) => lines.push(line),
    tooLong: () => new Error('too long'),
  })
  return { lines, push: (text: string | Buffer) => split.push(Buffer.from(text)) }
}

test('lines come out whole, wherever the stream is cut, also within a letter', () => {
  const text = Buffer.from('{"a":1}\n\n{"b":"größer 🙂"}\nrest\n')
  for (let size = 1; size <= text.length; size += 1) {
    const { lines, push } = splitter()
    for (let at = 0; at < text.length; at += size) push(text.subarray(at, at + size))
    expect(lines).toEqual(['{"a":1}', '', '{"b":"größer 🙂"}', 'rest'])
  }
})

test('a line without an end stays back', () => {
  const { lines, push } = splitter()
  push('one\ntw')
  expect(lines).toEqual(['one'])
  push('o\n')
  expect(lines).toEqual(['one', 'two'])
})

test('a line beyond the limit is refused before it has ended, and one at the limit is not', () => {
  const { lines, push } = splitter(10)
  push('0123456789\n01234')
  expect(lines).toEqual(['0123456789'])
  expect(() => push('567890')).toThrow('too long')
})

test('a long line in many pieces is not searched or copied over and over', () => {
  const pieces = 10_000
  const { lines, push } = splitter(Infinity)
  const piece = Buffer.alloc(1_000, 'x')
  // Quadratic copying would move 50 GB here.
  for (let count = 0; count < pieces; count += 1) push(piece)
  push('\n')
  expect(lines[0]).toHaveLength(pieces * piece.length)
})
