import { fitText, padText, type Style, textWidth } from './text.ts'

export interface Column {
  readonly title: string
  readonly align?: 'left' | 'right'
  /** Whether the column is narrowed if the table is too wide. */
  readonly shrinks?: boolean
  /** Whether the column may be left out if narrowing is not enough; the last one goes first. */
  readonly isOptional?: boolean
}

interface ShownColumn extends Column {
  readonly index: number
  room: number
}

const gap = '  '
const smallestColumn = 6

/** A table without rules, at most `width` wide if possible: columns that may shrink do so, widest first. */
export function textTable(options: {
  readonly columns: readonly Column[]
  readonly rows: readonly (readonly string[])[]
  readonly width: number
  readonly style: Style
}): readonly string[] {
  const titles = options.columns.map(({ title }) => title)
  const lines = [titles, ...options.rows]
  const widest = (index: number): number =>
    lines.reduce((most, cells) => Math.max(most, textWidth(cells[index] ?? '')), 0)
  const all = options.columns.map((column, index): ShownColumn => ({ ...column, index, room: widest(index) }))
  const shown = fittingColumns(all, options.width)
  const [head = '', ...rows] = lines.map((cells) =>
    shown
      .map(({ index, room, align }) => padText(cells[index] ?? '', room, align))
      .join(gap)
      .trimEnd(),
  )
  return [options.style.dim(head), ...rows]
}

function fittingColumns(columns: readonly ShownColumn[], width: number): readonly ShownColumn[] {
  const shown = columns.map((column) => ({ ...column }))
  const excess = shown.reduce((sum, { room }) => sum + room + gap.length, -gap.length) - width
  for (let left = excess; left > 0; left -= 1) {
    const [widest] = shown
      .filter(({ shrinks, room }) => shrinks && room > smallestColumn)
      .toSorted((one, other) => other.room - one.room)
    if (widest) {
      widest.room -= 1
      continue
    }
    const last = columns.findLast(({ isOptional }) => isOptional)
    return last
      ? fittingColumns(
          columns.filter((column) => column !== last),
          width,
        )
      : shown
  }
  return shown
}

export interface PanelSection {
  readonly title?: string
  readonly lines: readonly string[]
}

/**
 * Sections in one box of exactly `columns`, with titles set into its rules:
 *
 *     ╭─ title ───── note ─╮
 *     │ line               │
 *     ├─ title ────────────┤
 *     │ line               │
 *     ╰────────────────────╯
 */
export function panel(options: {
  readonly sections: readonly PanelSection[]
  readonly note?: string
  readonly columns: number
  readonly style: Style
}): readonly string[] {
  const { sections, note, columns, style } = options
  const edge = style.dim('│')
  const drawn: string[] = []
  for (const [index, { title, lines }] of sections.entries()) {
    const isFirst = index === 0
    drawn.push(rule({ ends: isFirst ? '╭╮' : '├┤', title, note: isFirst ? note : undefined, columns, style }))
    for (const line of lines) drawn.push(`${edge} ${padText(line, columns - 4)} ${edge}`)
  }
  return [...drawn, rule({ ends: '╰╯', columns, style })]
}

function rule(options: {
  readonly ends: string
  readonly title?: string | undefined
  readonly note?: string | undefined
  readonly columns: number
  readonly style: Style
}): string {
  const { ends, columns, style } = options
  const room = columns - 4
  const note = options.note === undefined ? '' : ` ${fitText(options.note, Math.floor(columns / 2) - 1)} `
  const title = options.title === undefined ? '' : ` ${fitText(options.title, room - textWidth(note) - 2)} `
  const dashes = '─'.repeat(Math.max(0, room - textWidth(title) - textWidth(note)))
  return `${style.dim(`${ends[0]}─`)}${style.bold(title)}${style.dim(dashes)}${note}${style.dim(`─${ends[1]}`)}`
}

export const labelColumns = 10

export function labelled(label: string, text: string, style: Style): string {
  return `${style.dim(padText(label, labelColumns))}${text}`
}

const eighths = ['', '▏', '▎', '▍', '▌', '▋', '▊', '▉']

/** A bar of exactly `columns`, filled to `share` (0 to 1), in steps of an eighth of a column. */
export function bar(share: number, columns: number): { readonly filled: string; readonly rest: string } {
  const filledEighths = Math.round(Math.min(1, Math.max(0, share)) * columns * 8)
  const whole = Math.floor(filledEighths / 8)
  const filled = '█'.repeat(whole) + (eighths[filledEighths % 8] ?? '')
  return { filled, rest: '░'.repeat(columns - filled.length) }
}
