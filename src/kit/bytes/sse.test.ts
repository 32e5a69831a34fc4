import { describe, expect, test } from 'vitest'
import { seededRandom } from './numbers.ts'
import { SseDecoder } from './sse.ts'

class Collector {
  readonly events: string[] = []
  onEvent(data: string): void {
    this.events.push(data)
  }
}

function openDecoder(maxBytes = 1000) {
  const collector = new Collector()
  const tooLong = (bytes: number): Error => new Error(`more than ${bytes} bytes`)
  return { decoder: new SseDecoder(collector, { maxBytes, tooLong }), events: collector.events }
}

function decode(chunks: readonly Buffer[]): string[] {
  const { decoder, events } = openDecoder()
  for (const chunk of chunks) decoder.push(chunk)
  return events
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
    ['a byte order mark at the beginning', '\u{feff}data: a\n\ndata: b\n\n', ['a', 'b']],
    ['and anywhere else', 'data: a\n\n\u{feff}data: b\n\ndata: \u{feff}c\n\n', ['a', '\u{feff}c']],
  ])('%s', (_name, text, expected) => {
    expect(decodeText(text)).toEqual(expected)
  })

  test('a line that is not UTF-8 is an error, after the events before it are delivered', () => {
    const collector = new Collector()
    const rules = { maxBytes: 1000, tooLong: () => new Error('too long'), notUtf8: () => new Error('not UTF-8') }
    const decoder = new SseDecoder(collector, rules)
    const valid = Buffer.from('data: é漢🙂\n\n')
    for (const byte of valid) decoder.push(Buffer.from([byte]))
    const broken = Buffer.concat([valid, Buffer.from('data: caf'), Buffer.from([0xe9]), Buffer.from('\n\n')])
    expect(() => decoder.push(broken)).toThrow('not UTF-8')
    expect(collector.events).toEqual(['é漢🙂', 'é漢🙂'])
  })

  test('events are the same wherever the bytes are cut', () => {
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

  test('the last event id and the retry delay are kept', () => {
    const { decoder } = openDecoder()
    decoder.push(Buffer.from('id: 7\nretry: 5\ndata: a\n\nidea: 9\nretry: soon\nretry:\n'))
    expect([decoder.lastId, decoder.retryMs]).toEqual(['7', 5])
    decoder.push(Buffer.from('id:8\r\nretry:60\r\n'))
    expect([decoder.lastId, decoder.retryMs]).toEqual(['8', 60])
    decoder.push(Buffer.from('id\n'))
    expect(decoder.lastId).toBe('')
  })

  test('the size limit of an event covers all its lines, and each event counts for itself', () => {
    const { decoder, events } = openDecoder(11)
    const push = (text: string): void => decoder.push(Buffer.from(text))
    push('data:12345\ndata:67890\n\ndata:12345\ndata:67890\n\n')
    expect(events).toHaveLength(2)
    push('data:12345\ndata:6789\ndata:\n')
    expect(() => push('data\n')).toThrow('more than 11 bytes')
    push('\n')
    expect(() => push('data:üü\ndata:üü\ndata:ü\n')).toThrow('more than 11 bytes')
  })

  test('a line has a size limit, in one piece, in many, or without an end', () => {
    const long = Buffer.from('data: 12345\n')
    expect(openDecoder(11).decoder.push(long)).toBeUndefined()
    expect(() => openDecoder(10).decoder.push(long)).toThrow('more than 10 bytes')
    for (const pieces of [
      [long.subarray(0, 6), long.subarray(6)],
      Array.from(long.subarray(0, -1), (byte) => Buffer.of(byte)),
    ]) {
      const { decoder } = openDecoder(10)
      expect(() => pieces.forEach((piece) => decoder.push(piece))).toThrow('more than 10 bytes')
    }
  })
})
