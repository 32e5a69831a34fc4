import type { Style } from './style.ts'
import { fitText, padText, textWidth } from './text-width.ts'

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
  /** Set into the right end of the first rule. */
  readonly note?: string
  readonly columns: number
  readonly style: Style
}): readonly string[] {
  const { columns, style } = options
  const lines: string[] = []
  for (const [index, section] of options.sections.entries()) {
    const [left, right] = index === 0 ? ['╭', '╮'] : ['├', '┤']
    lines.push(
      rule({ left, right, title: section.title, note: index === 0 ? options.note : undefined, columns, style }),
    )
    for (const line of section.lines) {
      lines.push(`${style.dim('│')} ${padText(line, columns - 4)} ${style.dim('│')}`)
    }
  }
  lines.push(style.dim(`╰${'─'.repeat(columns - 2)}╯`))
  return lines
}

function rule(options: {
  left: string
  right: string
  title: string | undefined
  note: string | undefined
  columns: number
  style: Style
}): string {
  const { style } = options
  const room = options.columns - 2
  const note = options.note === undefined ? '' : ` ${fitText(options.note, Math.floor(room / 2))} `
  const titleRoom = room - textWidth(note) - 4
  const title = options.title === undefined ? '' : ` ${fitText(options.title, titleRoom)} `
  const dashes = room - 1 - textWidth(title) - textWidth(note) - (note ? 1 : 0)
  return (
    style.dim(`${options.left}─`) +
    style.bold(title) +
    style.dim('─'.repeat(Math.max(0, dashes))) +
    note +
    style.dim(`${note ? '─' : ''}${options.right}`)
  )
}
