import { dtypeOf, type NumberArray } from './array-bytes.ts'

/** A hundred thousand numbers in one piece would hold up the event loop for tens of milliseconds. */
const numbersPerPiece = 8192
/** Divisible by three: the base64 of the pieces is the base64 of the whole. */
const bytesPerPiece = 192 * 1024

/** An array as a JSON list, in pieces. A number that is not finite is null. */
export function* numberPieces(numbers: NumberArray): Generator<string, void, void> {
  yield '['
  for (let start = 0; start < numbers.length; start += numbersPerPiece) {
    const piece = numbers.subarray(start, start + numbersPerPiece)
    const list = Array.from(piece)
    if (piece instanceof Float32Array) shorten(list)
    const text = JSON.stringify(list).slice(1, -1)
    yield start === 0 ? text : `,${text}`
  }
  yield ']'
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

/** The powers of ten that are exact as numbers. */
const powers = Array.from({ length: 23 }, (_, power) => Number(`1e${power}`))

/** Rounds 32-bit floats to nine digits, which tell any two of them apart; as text, all of their digits are twice as long. */
function shorten(floats: number[]): void {
  for (let index = 0; index < floats.length; index += 1) floats[index] = nineDigits(floats[index] as number)
}

function nineDigits(float: number): number {
  if (float === 0) return 0
  const power = powers[8 - Math.floor(Math.log10(Math.abs(float)))]
  return power === undefined ? Number(float.toPrecision(9)) : Math.round(float * power) / power
}
