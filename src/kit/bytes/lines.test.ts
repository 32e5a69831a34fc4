import { describe, expect, test } from 'vitest'
import { seededRandom } from './numbers.ts'
import { LineSplitter } from './lines.ts'

const pieces = ['', 'a', '{"x":1}', 'größe', '日本語', '😀', '\r', ' ', 'long '.repeat(20)]

function cutAnywhere(bytes: Buffer, random: () => number): Buffer[] {
  const chunks: Buffer[] = []
  for (let start = 0; start < bytes.length;) {
    const length = Math.floor(random() * 8)
    chunks.push(bytes.subarray(start, start + length))
    start += length
  }
  return chunks
}

function split(chunks: readonly Buffer[], maxLineBytes: number): (string | undefined)[] {
  const splitter = new LineSplitter(maxLineBytes)
  return [...chunks.flatMap((chunk) => splitter.push(chunk)), ...splitter.end()]
}

describe('LineSplitter', () => {
  test.each(Array.from({ length: 100 }, (_, seed) => seed))(
    'gives the same lines for any division of the bytes (%i)',
    (seed) => {
      const random = seededRandom(seed)
      const lines = Array.from({ length: Math.floor(random() * 12) }, () => {
        const count = Math.floor(random() * 4)
        return Array.from({ length: count }, () => pieces[Math.floor(random() * pieces.length)]).join('')
      })
      const endsOpen = random() < 0.5 && lines.at(-1) !== ''
      const bytes = Buffer.from(lines.map((line) => `${line}\n`).join(''))
      const maxLineBytes = 5 + Math.floor(random() * 100)
      const expected = lines.map((line) => (Buffer.byteLength(line) > maxLineBytes ? undefined : line))
      const input = endsOpen ? bytes.subarray(0, -1) : bytes
      expect(split(cutAnywhere(input, random), maxLineBytes)).toEqual(expected)
      expect(split([input], maxLineBytes)).toEqual(expected)
    },
  )

  test('does not keep a line that exceeds the limit', () => {
    const splitter = new LineSplitter(1_000)
    const before = process.memoryUsage().arrayBuffers
    // Far more than the collector lets pile up before it comes.
    for (let count = 0; count < 10_000; count += 1) expect(splitter.push(Buffer.alloc(100_000, 'x'))).toEqual([])
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(500_000_000)
    expect(splitter.push(Buffer.from('\nnext\n'))).toEqual([undefined, 'next'])
  })
})
