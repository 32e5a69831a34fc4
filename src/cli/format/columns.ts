import type { Style } from './style.ts'
import { padText, textWidth } from './text-width.ts'

export interface Column {
  readonly title: string
  readonly align?: 'left' | 'right'
  /** Whether the column is narrowed if the table is too wide. */
  readonly shrinks?: boolean
  /** Whether the column may be left out if narrowing is not enough; the last one goes first. */
  readonly isOptional?: boolean
}

const gap = '  '
const smallestColumn = 6

/** A table without rules, at most `width` wide if possible: columns that may shrink do so, widest first. */
export function columns(options: {
  readonly columns: readonly Column[]
  readonly rows: readonly (readonly string[])[]
  readonly width: number
  readonly style: Style
}): readonly string[] {
  const { rows, width, style } = options
  let shown = options.columns.map((column, place) => ({
    column,
    place,
    room: rows.reduce((widest, row) => Math.max(widest, textWidth(row[place] ?? '')), textWidth(column.title)),
  }))
  let rooms = roomsWithin(width, shown)
  while (!rooms) {
    const last = shown.findLast(({ column }) => column.isOptional)
    if (!last) break
    shown = shown.filter((other) => other !== last)
    rooms = roomsWithin(width, shown)
  }
  const line = (cells: readonly string[]): string =>
    shown
      .map(({ column, place, room }, index) =>
        padText(cells[place] ?? '', rooms?.[index] ?? smallestRoom(column, room), column.align ?? 'left'),
      )
      .join(gap)
      .trimEnd()
  return [style.dim(line(options.columns.map(({ title }) => title))), ...rows.map(line)]
}

/** The widths at which the columns are shown; undefined if they do not fit. */
function roomsWithin(
  width: number,
  shown: readonly { readonly column: Column; readonly room: number }[],
): readonly number[] | undefined {
  const rooms = shown.map(({ room }) => room)
  let excess = rooms.reduce((sum, room) => sum + room + gap.length, -gap.length) - width
  for (; excess > 0; excess -= 1) {
    let widest = -1
    for (const [index, { column }] of shown.entries()) {
      if (column.shrinks && (rooms[index] ?? 0) > (rooms[widest] ?? smallestColumn)) widest = index
    }
    if (widest < 0) return undefined
    rooms[widest] = (rooms[widest] ?? 0) - 1
  }
  return rooms
}

function smallestRoom({ shrinks }: Column, room: number): number {
  return shrinks ? Math.min(room, smallestColumn) : room
}
