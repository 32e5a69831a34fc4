/** The error and its causes, at most four: an error may be its own cause. */
export function* causesOf(error: unknown): Generator<Error> {
  let link = error
  for (let depth = 0; depth < 4 && link instanceof Error; depth += 1) {
    yield link
    link = link.cause
  }
}
