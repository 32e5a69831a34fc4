/**
 * Rows are fetched this many at a time and no statement stays open between them, so that a slow reader does not keep
 * the writer from recycling its log.
 */
export const pageRows = 256

/** All rows, page by page, of what reads up to `pageRows` of them that come after a position. */
export function* pages<Row extends { position: number }>(
  pageAfter: (position: number) => readonly Row[],
): Generator<Row, void, void> {
  let position = -1
  for (;;) {
    const rows = pageAfter(position)
    yield* rows
    const last = rows.at(-1)
    if (!last || rows.length < pageRows) return
    position = last.position
  }
}
