import { expect, test } from 'vitest'
import { commonLength, commonNumbers, memoryPieces, numberPieces } from './typed-arrays.ts'
import { seededRandom } from './numbers.ts'

const listOf = (numbers: Parameters<typeof numberPieces>[0]): unknown => JSON.parse([...numberPieces(numbers)].join(''))

test.each([
  [Int32Array.of(), []],
  [Int32Array.of(-1, 0, 0x7fff_ffff), [-1, 0, 0x7fff_ffff]],
  [Uint8Array.of(0, 255), [0, 255]],
  [Float32Array.of(-0.5, NaN, -Infinity, Infinity, 0, -0, 1e10), [-0.5, null, null, null, 0, 0, 1e10]],
  [Float32Array.of(-0.1, 1 / 3, -12.345_678), [-0.100000001, 0.333333343, -12.3456783]],
])('%o as a list', (numbers, list) => {
  expect(listOf(numbers)).toEqual(list)
})

test('a long list is written in pieces with the same content', () => {
  const numbers = Int32Array.from({ length: 100_000 }, (_, index) => index)
  expect(Math.max(...Array.from(numberPieces(numbers), (piece) => piece.length))).toBeLessThan(64 * 1024)
  expect(listOf(numbers)).toEqual(Array.from(numbers))
})

test('every 32-bit float is read back unchanged', () => {
  const random = seededRandom(1)
  const bits = Uint32Array.from({ length: 200_000 }, () => random() * 2 ** 32)
  const floats = new Float32Array(bits.buffer).filter(Number.isFinite)
  expect(Buffer.from(Float32Array.from(listOf(floats) as number[]).buffer).equals(Buffer.from(floats.buffer))).toBe(
    true,
  )
})

test.each([
  [Uint8Array.of(1, 2, 3), 'uint8', 'AQID'],
  [Int16Array.of(1, -1), 'int16', 'AQD//w=='],
  [Int32Array.of(1), 'int32', 'AQAAAA=='],
  [Float32Array.of(1), 'float32', 'AACAPw=='],
])('the base64 form of %o', (numbers, dtype, data) => {
  expect(JSON.parse([...memoryPieces(numbers)].join(''))).toEqual({ dtype, data })
})

test('the base64 form in pieces holds all bytes, also of a part of a buffer', () => {
  const bytes = Uint8Array.from({ length: 1_000_000 }, (_, index) => index % 251)
  const part = bytes.subarray(7, -1)
  const text = JSON.parse([...memoryPieces(part, [2, 499_996])].join('')) as { shape: number[]; data: string }
  expect(text.shape).toEqual([2, 499_996])
  expect(Buffer.from(text.data, 'base64').equals(part)).toBe(true)
})

test('the numbers that two arrays have in common at their beginning are counted as by comparing one by one', () => {
  const random = seededRandom(7)
  for (let round = 0; round < 2_000; round += 1) {
    const first = Int32Array.from({ length: Math.floor(random() * 40) }, () => Math.floor(random() * 3))
    const second = first.slice(0, Math.floor(random() * 41))
    if (second.length > 0 && random() < 0.7) second[Math.floor(random() * second.length)] = 9
    expect(commonNumbers(first, second)).toBe(commonLength(first, second))
    expect(commonNumbers(second, first)).toBe(commonLength(first, second))
  }
})
