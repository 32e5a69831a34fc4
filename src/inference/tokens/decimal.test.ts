import { expect, test } from 'vitest'
import { seededRandom } from '../../kit/index.ts'
import { Decimal } from './_decimal.ts'

const read = (text: string): { value: number; end: number } => {
  const decimal = new Decimal()
  // Something before and behind it, as in a document.
  const bytes = Buffer.from(`:${text},`)
  const end = decimal.read(bytes, 1)
  return { value: decimal.value, end: end === -1 ? -1 : end - 1 }
}

/** One assertion for each would take longer than the work. */
const same = (text: string): void => {
  const { value, end } = read(text)
  const isSame = end === text.length && Object.is(value, Math.fround(Number(text)))
  if (!isSame) expect({ text, value, end }).toEqual({ text, value: Math.fround(Number(text)), end: text.length })
}

test('is the float that Number and fround make, for every way a number is written', () => {
  const random = seededRandom(1)
  const digits = (count: number): string =>
    Array.from({ length: count }, () => Math.floor(random() * 10)).join('') || '0'
  for (let round = 0; round < 100_000; round += 1) {
    const sign = random() < 0.5 ? '-' : ''
    const whole = random() < 0.5 ? '0' : String(Number(digits(1 + Math.floor(random() * 9))))
    const fraction =
      random() < 0.8 ? `.${'0'.repeat(Math.floor(random() * 12))}${digits(Math.floor(random() * 22) + 1)}` : ''
    const exponent =
      random() < 0.3
        ? `${random() < 0.5 ? 'e' : 'E'}${['', '+', '-'][Math.floor(random() * 3)]}${Math.floor(random() * 60)}`
        : ''
    same(sign + whole + fraction + exponent)
  }
})

test('also next to the border between two floats, where a digit far behind decides', () => {
  const random = seededRandom(2)
  const float = new Float32Array(1)
  const bits = new Int32Array(float.buffer)
  for (let round = 0; round < 20_000; round += 1) {
    float[0] = random() * 10 ** Math.floor(random() * 10 - 8)
    const one = float[0]
    bits[0] = (bits[0] ?? 0) + 1
    const border = (one + float[0]) / 2
    // Exactly the border, and a little to either side of it.
    same(String(border))
    same(border.toPrecision(17))
    same(border.toPrecision(21))
    same(`${border.toFixed(20)}1`)
    same(String(border * (1 + 2 ** -52)))
    same(String(border * (1 - 2 ** -53)))
  }
})

test.each([
  '0',
  '-0',
  '-0.0',
  '0e5',
  '1e-45',
  '1e-46',
  '3.4028236e38',
  '1e39',
  '1e400',
  '-1e-400',
  '16777217',
  '0.1',
  '123456789012345678901234567890',
])('%s', same)

test.each(['', '-', '.5', '5.', '01', '-01', '1e', '1e+', 'e5', 'x', '+1'])('"%s" is no number', (text) => {
  expect(read(text).end).toBe(-1)
})

test('ends where the number ends', () => {
  expect(read('1.5.5').end).toBe(3)
  expect(read('12]').end).toBe(2)
})
