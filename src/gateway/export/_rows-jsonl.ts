import { expertsText } from '../../store/index.ts'
import { partsOf, type Row, type RowArray } from './_rows-parts.ts'

/** The numbers in one piece. A hundred thousand tokens as one text would hold up the event loop for tens of milliseconds. */
const pieceNumbers = 8192

/** One row as a line of JSON, newline included, in pieces. A log-probability that is not finite is null. */
export function* jsonPieces(row: Row): Generator<string, void, void> {
  const { fields, arrays } = partsOf(row)
  yield JSON.stringify(fields).slice(0, -1)
  for (const array of arrays) {
    yield `,"${array.name}":`
    yield* arrayPieces(array)
  }
  yield '}\n'
}

function* arrayPieces({ name, values, shape }: RowArray): Generator<string, void, void> {
  // Experts are written as text: a list of numbers would be the longest part of a line by far.
  if (name === 'routedExperts' && !(values instanceof Float32Array)) {
    yield JSON.stringify(expertsText({ shape, experts: values }))
    return
  }
  yield '['
  for (let start = 0; start < values.length; start += pieceNumbers) {
    const piece = values.subarray(start, start + pieceNumbers)
    const text = piece instanceof Float32Array ? JSON.stringify(Array.from(piece)).slice(1, -1) : piece.join(',')
    yield start === 0 ? text : `,${text}`
  }
  yield ']'
}
