import type { Style } from './style.ts'
import { padText, textWidth } from './text-width.ts'

export interface Column {
  readonly title: string
  readonly align?: 'left' | 'right'
  /** Gives up room first when the table is too wide. */
  readonly shrinks?: boolean
}

const gap = '  '
const smallestColumn = 6

/** A table without rules, at most `width` wide: columns that may shrink do so, widest first. */
export function columns(options: {
  readonly columns: readonly Column[]
  readonly rows: readonly (readonly string[])[]
  readonly width: number
  readonly style: Style
}): readonly string[] {
  const widths = options.columns.map((column, index) =>
    options.rows.reduce((widest, row) => Math.max(widest, textWidth(row[index] ?? '')), textWidth(column.title)),
  )
  shrink(widths, options)
  const line = (cells: readonly string[]): string =>
    options.columns
      .map((column, index) =>
        padText(cells[index] ?? '', widths[index] ?? 0, column.align === 'right' ? 'right' : 'left'),
      )
      .join(gap)
      .trimEnd()
  return [options.style.dim(line(options.columns.map((column) => column.title))), ...options.rows.map(line)]
}

function shrink(widths: number[], options: { readonly columns: readonly Column[]; readonly width: number }): void {
  let excess = widths.reduce((sum, width) => sum + width, 0) + gap.length * (widths.length - 1) - options.width
  while (excess > 0) {
    let widest = -1
    for (const [index, column] of options.columns.entries()) {
      if (column.shrinks && (widths[index] ?? 0) > (widths[widest] ?? smallestColumn)) widest = index
    }
    if (widest < 0) return
    widths[widest] = (widths[widest] ?? 0) - 1
    excess -= 1
  }
}
