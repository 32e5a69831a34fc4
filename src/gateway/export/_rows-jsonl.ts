import { memoryPieces, numberPieces } from '../../kit/index.ts'
import { partsOf, type Row } from './_rows-parts.ts'

/** One row as a line of JSON, newline included, in pieces. A log-probability that is not finite is null. */
export function* jsonPieces(row: Row): Generator<string, void, void> {
  const { fields, arrays } = partsOf(row)
  yield JSON.stringify(fields).slice(0, -1)
  for (const { name, values, shape } of arrays) {
    yield `,"${name}":`
    // As a list of numbers, experts would be the longest part of a line by far.
    yield* name === 'routedExperts' ? memoryPieces(values, shape) : numberPieces(values)
  }
  yield '}\n'
}
