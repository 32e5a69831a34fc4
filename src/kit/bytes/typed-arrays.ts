export type NumberArray = Uint8Array | Int16Array | Int32Array | Float32Array

/** The name of an array's type in formats that others read: NumPy takes it as it is. */
export function dtypeOf(numbers: NumberArray): 'uint8' | 'int16' | 'int32' | 'float32' {
  if (numbers instanceof Int32Array) return 'int32'
  if (numbers instanceof Float32Array) return 'float32'
  return numbers instanceof Int16Array ? 'int16' : 'uint8'
}

/** The memory of an array as bytes, without a copy; little-endian, as on every machine that this runs on. */
export function bytesOf({ buffer, byteOffset, byteLength }: NumberArray): Uint8Array {
  return new Uint8Array(buffer, byteOffset, byteLength)
}

/** A hundred thousand numbers in one piece would hold up the event loop for tens of milliseconds. */
const numbersPerPiece = 8192
/** Divisible by three: the base64 of the pieces is the base64 of the whole. */
const bytesPerPiece = 192 * 1024

/** An array as a JSON list, in pieces. A number that is not finite is null. */
export function* numberPieces(numbers: NumberArray): Generator<string, void, void> {
  yield '['
  for (let start = 0; start < numbers.length; start += numbersPerPiece) {
    const piece = numbers.subarray(start, start + numbersPerPiece)
    const text = JSON.stringify(plainNumbers(piece)).slice(1, -1)
    yield start === 0 ? text : `,${text}`
  }
  yield ']'
}

/** The numbers for JSON: a 32-bit float has nine digits there, which are enough to read it back. */
export function plainNumbers(numbers: NumberArray): number[] {
  return numbers instanceof Float32Array ? Array.from(numbers, nineDigits) : Array.from(numbers)
}

/** An array as a JSON object, in pieces: its shape, if it has one, its type, and its memory in base64. */
export function* memoryPieces(numbers: NumberArray, shape?: readonly number[]): Generator<string, void, void> {
  const { buffer, byteOffset, byteLength } = numbers
  yield `{${shape ? `"shape":${JSON.stringify(shape)},` : ''}"dtype":"${dtypeOf(numbers)}","data":"`
  for (let start = 0; start < byteLength; start += bytesPerPiece) {
    yield Buffer.from(buffer, byteOffset + start, Math.min(bytesPerPiece, byteLength - start)).toString('base64')
  }
  yield '"}'
}

const powers = Array.from({ length: 23 }, (_, power) => Number(`1e${power}`))

/** Nine digits tell any two 32-bit floats apart; as text, all of their digits are twice as long. */
function nineDigits(float: number): number {
  if (float === 0) return 0
  const power = powers[8 - Math.floor(Math.log10(Math.abs(float)))]
  return power === undefined ? Number(float.toPrecision(9)) : Math.round(float * power) / power
}

/** Whether two arrays have the same numbers. Comparing bytes is many times faster than comparing number by number. */
export function sameNumbers(first: Int32Array, second: Int32Array): boolean {
  if (first.length !== second.length) return false
  // The prompts of one conversation share their memory.
  if (first.buffer === second.buffer && first.byteOffset === second.byteOffset) return true
  return Buffer.compare(bytesOf(first), bytesOf(second)) === 0
}

/** How many numbers two arrays have in common at their beginning: `commonLength`, by comparing bytes. */
export function commonNumbers(first: Int32Array, second: Int32Array): number {
  let end = Math.min(first.length, second.length)
  if (sameNumbers(first.subarray(0, end), second.subarray(0, end))) return end
  // The first difference is at `common` or after it, and before `end`.
  let common = 0
  while (end - common > 1) {
    const middle = (common + end) >>> 1
    if (sameNumbers(first.subarray(common, middle), second.subarray(common, middle))) common = middle
    else end = middle
  }
  return common
}

/** How many members, or characters, two lists or texts have in common at their beginning. */
export function commonLength<Member>(one: ArrayLike<Member>, other: ArrayLike<Member>): number {
  const shorter = Math.min(one.length, other.length)
  let length = 0
  while (length < shorter && one[length] === other[length]) length += 1
  return length
}
