import type { ReplayReport } from '../../eval/index.ts'
import { columns } from '../format/columns.ts'
import { formatCount, formatQuantity } from '../format/count.ts'
import { printableLine } from '../format/printable.ts'
import type { Style } from '../format/style.ts'
import { messageDiff } from './_message-diff.ts'

interface Shape {
  readonly width: number
  readonly style: Style
}

/** The report of one rollout's replay, for people. */
export function replayText(report: ReplayReport, { width, style }: Shape): string[] {
  const { rollout, verdict, why, differences, omitted, first, hints } = report
  const lines = [`${style.bold(rollout)}  ${verdictText(report, style)}`]
  if (why !== undefined && verdict !== 'skipped')
    lines.push(style.warn(`It did not come to its end: ${printableLine(why)}`))
  if (differences.length > 0) {
    const rows = differences.map(({ session, what, recorded, replayed }) => [
      session === rollout ? what : `${session}: ${what}`,
      printableLine(recorded ?? '–'),
      printableLine(replayed ?? '–'),
    ])
    const titles = [{ title: 'what' }, { title: 'recorded', shrinks: true }, { title: 'replayed', shrinks: true }]
    lines.push('', ...columns({ columns: titles, rows, width, style }))
  }
  if (omitted > 0) lines.push(style.dim(formatQuantity(omitted, 'more difference')))
  if (first) lines.push('', ...messageDiff(first, style))
  for (const hint of hints) lines.push('', `${style.accent('Hint:')} ${hint}.`)
  return lines
}

function verdictText({ verdict, why, outcome, messages, children }: ReplayReport, style: Style): string {
  if (verdict === 'skipped') return style.warn(`cannot be replayed: ${printableLine(why ?? '')}`)
  if (verdict === 'different') return style.bad('differs from its recording')
  const parts = [formatQuantity(messages, 'message')]
  if (children.replayed > 0) parts.push(`${childrenText(children.replayed)} run again`)
  if (children.kept > 0) parts.push(`${childrenText(children.kept)} as recorded with the tools that asked them`)
  return `${style.good('identical')}: ${parts.join(', ')}, outcome ${outcome}, rewards and usage`
}

function childrenText(count: number): string {
  return count === 1 ? '1 child' : `${formatCount(count)} children`
}
