import { exactSource, parseExactly } from '../../../kit/index.ts'

/**
 * A number as Python tells them apart: `bigint` is its `int`, `number` its `float`. JSON that says 1.0 must not become 1 on its
 * way: pandas makes a column of integers from the one, and the client's types follow.
 */
export type PythonNumber = bigint | number

/** JSON in which numbers keep what `pythonNumber` needs. Python's parser takes `NaN` and `Infinity`, too. */
export function parsePython(bytes: Uint8Array): unknown {
  return parseTolerantly(bytes, parseExactly, beyondDoubles)
}

/** The same for what is sent on as JSON, which has no `NaN` and no `Infinity`: they become null, as pandas reads them. */
export function parseFinite(bytes: Uint8Array, parse: (text: string) => unknown): unknown {
  return parseTolerantly(bytes, parse, 'null')
}

function parseTolerantly(bytes: Uint8Array, parse: (text: string) => unknown, notFinite: string): unknown {
  const text = decoder.decode(bytes)
  try {
    return parse(text)
  } catch (error) {
    const finite = text.replaceAll(stringOrNotFinite, (found) => (found.startsWith('"') ? found : notFinite))
    if (finite === text) throw error
    return parse(finite)
  }
}

const decoder = new TextDecoder()
const stringOrNotFinite = /"(?:[^"\\]|\\.)*"|NaN|-?Infinity/gs
const beyondDoubles = '1e999'
/** From here on JavaScript itself writes a whole number with an exponent, as Python writes floats. */
const leastWithExponent = 1e21

/** Undefined for what is no number. A number that is not finite is NaN, which is how pandas has a value that is missing. */
export function pythonNumber(value: unknown): PythonNumber | undefined {
  if (typeof value === 'number') {
    return Number.isInteger(value) && Math.abs(value) < leastWithExponent ? BigInt(value) : value
  }
  const source = exactSource(value)
  if (source === undefined) return undefined
  if (/^-?\d+$/.test(source)) return BigInt(source)
  const parsed = Number(source)
  return Number.isFinite(parsed) ? parsed : NaN
}

/** As `pythonNumber`, and a boolean is 0 or 1. */
export function pythonNumberOrFlag(value: unknown): PythonNumber | undefined {
  return typeof value === 'boolean' ? BigInt(value) : pythonNumber(value)
}

/** JSON whose floats are floats to every reader. Numbers may also be those of `parsePython`. */
export function writePython(value: unknown): string {
  if (typeof value === 'bigint') return String(value)
  if (typeof value === 'number') return floatText(value)
  if (Array.isArray(value)) return `[${value.map(writePython).join(',')}]`
  if (typeof value !== 'object' || value === null) return JSON.stringify(value)
  const parsed = pythonNumber(value)
  if (parsed !== undefined) return writePython(parsed)
  const members: string[] = []
  for (const [key, inner] of Object.entries(value)) {
    if (inner !== undefined) members.push(`${JSON.stringify(key)}:${writePython(inner)}`)
  }
  return `{${members.join(',')}}`
}

function floatText(value: number): string {
  if (!Number.isFinite(value)) return 'null'
  if (Object.is(value, -0)) return '-0.0'
  const text = String(value)
  return /^-?\d+$/.test(text) ? `${text}.0` : text
}

const unrolled = 8
const pairwiseBlock = 128

/** The sum as numpy adds: eight running sums at once in blocks, the blocks in pairs. In another order the last digits differ. */
export function pairwiseSum(values: Float64Array): number {
  return 0 + sumFrom(values, 0, values.length)
}

function sumFrom(values: Float64Array, start: number, count: number): number {
  const at = (index: number): number => values[start + index] as number
  if (count < unrolled) {
    let sum = -0
    for (let index = 0; index < count; index += 1) sum += at(index)
    return sum
  }
  if (count > pairwiseBlock) {
    const half = Math.floor(count / 2)
    const first = half - (half % unrolled)
    return sumFrom(values, start, first) + sumFrom(values, start + first, count - first)
  }
  let [a, b, c, d, e, f, g, h] = [at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7)]
  const whole = count - (count % unrolled)
  for (let index = unrolled; index < whole; index += unrolled) {
    a += at(index)
    b += at(index + 1)
    c += at(index + 2)
    d += at(index + 3)
    e += at(index + 4)
    f += at(index + 5)
    g += at(index + 6)
    h += at(index + 7)
  }
  let sum = a + b + (c + d) + (e + f + (g + h))
  for (let index = whole; index < count; index += 1) sum += at(index)
  return sum
}

/** Python's `sum`: exact while it sees integers, and from the second float on with the error of each addition kept (Neumaier). */
export function pythonSum(values: readonly PythonNumber[]): PythonNumber {
  let whole = 0n
  let index = 0
  for (; index < values.length; index += 1) {
    const value = values[index]
    if (typeof value !== 'bigint') break
    whole += value
  }
  const first = values[index]
  if (first === undefined) return whole
  let sum = Number(whole) + Number(first)
  let lost = 0
  for (const value of values.slice(index + 1)) {
    if (typeof value === 'bigint') {
      sum += Number(value)
      continue
    }
    const next = sum + value
    lost += Math.abs(sum) >= Math.abs(value) ? sum - next + value : value - next + sum
    sum = next
  }
  return lost !== 0 && Number.isFinite(lost) ? sum + lost : sum
}

/** Python's `sum(values) / len(values)`. */
export function pythonMean(values: readonly PythonNumber[]): number {
  const sum = pythonSum(values)
  return typeof sum === 'bigint' ? quotient(sum, BigInt(values.length)) : sum / values.length
}

/** Enough for a double, and one more bit to tell which way to round. */
const quotientBits = 55

/** The double nearest to a/b. Dividing the doubles nearest to `a` and `b` would round three times. */
export function quotient(a: bigint, b: bigint): number {
  if (a < 0n) return -quotient(-a, b)
  if (a === 0n) return 0
  const shift = Math.max(0, b.toString(2).length - a.toString(2).length + quotientBits)
  const scaled = a << BigInt(shift)
  // A remainder makes the last bit 1, so that what lies in the middle of two doubles is not taken for exact.
  const result = (scaled / b) | (scaled % b === 0n ? 0n : 1n)
  return Number(result) * 2 ** -shift
}
