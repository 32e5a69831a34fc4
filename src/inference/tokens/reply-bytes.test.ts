import { expect, test } from 'vitest'
import { ReplyBytes } from './reply-bytes.ts'

const read = (size: number, fill: number): Buffer => Buffer.from(new ArrayBuffer(size)).fill(fill)

const collected = (chunks: readonly Buffer[]): ReplyBytes => {
  const bytes = new ReplyBytes()
  for (const chunk of chunks) bytes.push(chunk)
  return bytes
}

test('is the chunks, joined', () => {
  expect(collected([]).joined()).toHaveLength(0)
  const one = read(10, 1)
  expect(collected([one]).joined()).toBe(one)
  const two = collected([read(10, 1), read(5, 2)])
  expect(two.length).toBe(15)
  expect(two.joined()).toEqual(Buffer.concat([read(10, 1), read(5, 2)]))
})

test('gives away whole reads as they are, and copies the rest', () => {
  const shared = read(60_000, 4)
  const chunks = [
    read(65_536, 1),
    // From Node's pool, which must not be given away.
    Buffer.from('pooled'),
    Buffer.from('pooled too'),
    read(65_536, 2),
    // The parser is still at the read that the last chunk is from.
    shared.subarray(0, 30_000),
    shared.subarray(30_000),
  ]
  const whole = Buffer.concat(chunks)
  const given = collected(chunks).give()
  expect(given[0]?.buffer).toBe(chunks[0]?.buffer)
  expect(given[2]?.buffer).toBe(chunks[3]?.buffer)
  expect(given.map(({ length }) => length)).toEqual([65_536, 16, 65_536, 60_000])
  expect(Buffer.concat(given).equals(whole)).toBe(true)
  structuredClone(given, { transfer: given.map(({ buffer }) => buffer) })
  expect(shared).toHaveLength(60_000)
})

test('is empty once it was given away', () => {
  const bytes = collected([read(70_000, 1), read(70_000, 2)])
  bytes.give()
  expect(bytes.give()).toEqual([])
})

test('what was joined before is given away without another copy', () => {
  const bytes = collected([read(70_000, 1), read(70_000, 2)])
  const joined = bytes.joined()
  const given = bytes.give()
  expect(given.map(({ length }) => length)).toEqual([140_000])
  expect(given[0]?.buffer).toBe(joined.buffer)
})
