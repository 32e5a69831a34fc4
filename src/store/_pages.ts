/**
 * Rows are fetched this many at a time and no statement stays open between them, so that a slow reader does not keep
 * the writer from recycling its log.
 */
const pageRows = 256

/** All rows, page by page. `pageAfter` reads up to `count` rows after the last one, or the first rows. */
export function* pages<Row>(
  pageAfter: (last: Row | undefined, count: number) => readonly Row[],
  count = pageRows,
): Generator<Row, void, void> {
  let last: Row | undefined
  for (;;) {
    const rows = pageAfter(last, count)
    yield* rows
    if (rows.length < count) return
    last = rows.at(-1)
  }
}
