import { describe, expect, test } from 'vitest'
import { seededRandom } from '../../kit/index.ts'
import { SseDecoder, maxLineBytes } from './sse-decoder.ts'

class Collector {
  readonly events: string[] = []
  onEvent(data: string): void {
    this.events.push(data)
  }
}

function decode(chunks: readonly Buffer[]): string[] {
  const collector = new Collector()
  const decoder = new SseDecoder(collector)
  for (const chunk of chunks) decoder.push(chunk)
  return collector.events
}

const decodeText = (text: string): string[] => decode([Buffer.from(text)])

/** The text cut at random bytes, in the middle of characters too. */
function cutAtRandom(bytes: Buffer, random: () => number): Buffer[] {
  const chunks: Buffer[] = []
  let start = 0
  while (start < bytes.length) {
    const end = Math.min(bytes.length, start + 1 + Math.floor(random() ** 3 * 40))
    chunks.push(bytes.subarray(start, end))
    start = end
  }
  return chunks
}

describe('SseDecoder', () => {
  test.each([
    ['one event', 'data: a\n\n', ['a']],
    ['no space after the colon', 'data:a\n\n', ['a']],
    ['only one space is syntax', 'data:  a\n\n', [' a']],
    ['CRLF', 'data: a\r\n\r\ndata: b\r\n\r\n', ['a', 'b']],
    ['several lines of data', 'data: a\ndata: b\n\n', ['a\nb']],
    ['an empty line of data in the middle', 'data: a\ndata\ndata: b\n\n', ['a\n\nb']],
    ['comments and other fields', ': ping\n\nevent: x\nid: 1\nretry: 5\ndata: a\n\n', ['a']],
    ['a field that only begins like data', 'database: x\ndata: a\n\n', ['a']],
    ['an event without data', 'event: ping\n\ndata: a\n\n', ['a']],
    ['an event without its end', 'data: a\n\ndata: b\n', ['a']],
    ['a line without its end', 'data: a\n\ndata: b', ['a']],
    ['colons in the data', 'data: {"a":"b: c"}\n\n', ['{"a":"b: c"}']],
  ])('%s', (_name, text, expected) => {
    expect(decodeText(text)).toEqual(expected)
  })

  test('events come out the same wherever the bytes are cut', () => {
    const alphabet = ['a', '"', ' ', ':', 'é', '漢', '🙂', '\\n', 'data']
    for (let seed = 0; seed < 300; seed += 1) {
      const random = seededRandom(seed)
      const pick = <T>(items: readonly T[]): T => items[Math.floor(random() * items.length)] as T
      const word = (): string => Array.from({ length: 1 + Math.floor(random() * 12) }, () => pick(alphabet)).join('')
      const events = Array.from({ length: 1 + Math.floor(random() * 8) }, () =>
        Array.from({ length: 1 + Math.floor(random() * 3) }, word),
      )
      const newline = pick(['\n', '\r\n'])
      const text = events
        .map((lines) => {
          const noise = random() < 0.3 ? `: ${word()}${newline}` : ''
          return noise + lines.map((line) => `data: ${line}${newline}`).join('') + newline
        })
        .join('')
      const decoded = decode(cutAtRandom(Buffer.from(text), random))
      expect(decoded, `seed ${seed}`).toEqual(events.map((lines) => lines.join('\n')))
    }
  })

  test('an event that never ends is refused instead of kept', () => {
    const decoder = new SseDecoder(new Collector())
    const line = Buffer.from(`data: ${'x'.repeat(1024 * 1024)}\n`)
    expect(() => {
      for (let bytes = 0; bytes <= maxLineBytes; bytes += line.length) decoder.push(line)
    }).toThrow(RangeError)
  })

  test('a line that never ends is refused instead of kept', () => {
    const decoder = new SseDecoder(new Collector())
    const piece = Buffer.alloc(1024 * 1024, 'x')
    expect(() => {
      for (let bytes = 0; bytes <= maxLineBytes; bytes += piece.length) decoder.push(piece)
    }).toThrow(RangeError)
  })
})
