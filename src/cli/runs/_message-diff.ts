import type { MessageDifference } from '../../eval/index.ts'
import { commonLength } from '../../kit/index.ts'
import type { Message } from '../../schema/index.ts'
import { printable } from '../format/printable.ts'
import type { Style } from '../format/style.ts'

/** The number of equal lines shown before and after those that differ. */
const contextLines = 3
/** The most lines shown of each side: a message may be a whole file. */
const maxShownLines = 40
const maxLineChars = 400

/** Two messages as a diff: the recorded one with a minus, the replayed one with a plus. */
export function messageDiff({ session, seq, recorded, replayed }: MessageDifference, style: Style): string[] {
  const [before, after] = [linesOf(recorded), linesOf(replayed)]
  const head = commonLength(before, after)
  const tail = commonLength(before.slice(head).toReversed(), after.slice(head).toReversed())
  const mark = (lines: readonly string[], sign: string): string[] =>
    shortened(lines.slice(head, lines.length - tail)).map((line) => `${sign} ${line}`)
  return [
    style.bold(`First difference: message ${seq} of ${session} (${recorded?.role ?? replayed?.role ?? ''})`),
    ...before.slice(Math.max(0, head - contextLines), head).map((line) => style.dim(`  ${line}`)),
    ...mark(before, '-').map(style.bad),
    ...mark(after, '+').map(style.good),
    ...before.slice(before.length - tail, before.length - tail + contextLines).map((line) => style.dim(`  ${line}`)),
  ]
}

function linesOf(message: Message | null): string[] {
  if (!message) return ['(no message)']
  const { role, content, ...rest } = message
  const text =
    typeof content === 'string'
      ? content
      : (content ?? []).map((part) => (part.type === 'text' ? part.text : `[${part.type}]`)).join('\n')
  const others = Object.entries(rest).map(([name, value]) => `${name}: ${JSON.stringify(value)}`)
  return [`role: ${role}`, ...printable(text).split('\n'), ...others.map(printable)].map((line) =>
    line.length > maxLineChars ? `${line.slice(0, maxLineChars)}…` : line,
  )
}

function shortened(lines: readonly string[]): string[] {
  if (lines.length <= maxShownLines) return [...lines]
  return [...lines.slice(0, maxShownLines), `… ${lines.length - maxShownLines} more lines`]
}
