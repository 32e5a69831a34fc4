import type { StatementSync } from 'node:sqlite'

/**
 * Rows are fetched this many at a time and no statement stays open between them, so that a slow reader does not keep
 * the writer from recycling its log.
 */
export const pageRows = 256

/** All rows of a statement that takes the last position and a number of rows, page by page. */
export function* pages<Row extends { position: number }>(
  page: StatementSync,
  ...more: readonly (string | null)[]
): Generator<Row, void, void> {
  let position = -1
  for (;;) {
    const rows = page.all(position, pageRows, ...more) as Row[]
    yield* rows
    const last = rows.at(-1)
    if (!last || rows.length < pageRows) return
    position = last.position
  }
}
