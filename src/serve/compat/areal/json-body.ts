import { Readable } from 'node:stream'

/** Up to here a body is sent in one piece. */
const maxWholeChars = 1024 * 1024

/** A short body as it is, a long one as a stream that is made while it is sent. */
export function bodyOf(pieces: Iterable<string>): string | Readable {
  const rest = pieces[Symbol.iterator]()
  let begun = ''
  for (let next = rest.next(); !next.done; next = rest.next()) {
    begun += next.value
    if (begun.length > maxWholeChars) return Readable.from(resumed(begun, rest), { objectMode: false })
  }
  return begun
}

function* resumed(begun: string, rest: Iterator<string>): Generator<string, void, void> {
  yield begun
  for (let next = rest.next(); !next.done; next = rest.next()) yield next.value
}
