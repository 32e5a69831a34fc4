import type { RescoredSide, RescoreSummary, ScoreEstimate } from '../../eval/index.ts'
import { columns } from '../format/columns.ts'
import { formatCount, formatQuantity } from '../format/count.ts'
import { formatDuration } from '../format/duration.ts'
import { formatMoney } from '../format/money.ts'
import { printableLine } from '../format/printable.ts'
import { formatEstimate, formatScore, intervalNote } from '../format/score.ts'
import type { Style } from '../format/style.ts'

/** The scores of a run before and after, as a table, with the same intervals as in `eval` and `show`. */
export function rescoreText(summary: RescoreSummary, { width, style }: { width: number; style: Style }): string[] {
  const { run, environment, rollouts, before, after, change, wallMs } = summary
  const names = new Set([...Object.keys(before.components), ...Object.keys(after.components)])
  const rows = [
    ['score', formatEstimate(before.score), formatEstimate(after.score), changeText(change)],
    ...Array.from(names, (name) => [
      `  ${printableLine(name)}`,
      componentText(before, name),
      componentText(after, name),
      '',
    ]),
    ['scored', formatCount(before.scored), formatCount(after.scored), ''],
  ]
  const titles = [
    { title: '', shrinks: true },
    { title: 'before', align: 'right' },
    { title: 'after', align: 'right' },
    { title: 'change', align: 'right' },
  ] as const
  return [
    `${style.bold(run)}  scored again with the rewards of ${printableLine(environment)}`,
    '',
    ...columns({ columns: titles, rows, width, style }),
    style.dim(`in brackets: ${intervalNote(after.score ?? before.score)}`),
    '',
    `${formatQuantity(rollouts, 'rollout')} in ${formatDuration(wallMs)}; ${formatCount(summary.changed)} with another reward`,
    ...problemLines(summary, style),
  ]
}

function problemLines(
  { unreadable, withoutTask, withStoredTask, unscorable, failures, judgeUsage, judgeCost, notices }: RescoreSummary,
  style: Style,
): string[] {
  const lines: string[] = []
  if (judgeUsage.calls > 0) {
    const cost = judgeCost === null ? 'at an unknown price' : `for ${formatMoney(judgeCost)}`
    lines.push(`${formatQuantity(judgeUsage.calls, 'judge call')} ${cost}`)
  }
  if (withStoredTask > 0) {
    lines.push(`${formatQuantity(withStoredTask, 'rollout')} scored with the stored rows of their tasks`)
  }
  if (unreadable) lines.push(style.warn(`${formatQuantity(unreadable.rollouts, 'rollout')} left out: damaged`))
  if (withoutTask > 0) {
    lines.push(
      style.warn(
        `${formatQuantity(withoutTask, 'rollout')} not scored: their tasks have changed, or are gone and not stored`,
      ),
    )
  }
  for (const { outcome, message, count } of unscorable) {
    const first = message === '' ? '' : `${count > 1 ? '; the first' : ''}: ${printableLine(message)}`
    lines.push(`${formatQuantity(count, 'rollout')} had no score then either, having ended as ${outcome}${first}`)
  }
  for (const { message, count } of failures) {
    lines.push(style.warn(`${formatQuantity(count, 'rollout')} not scored: ${printableLine(message)}`))
  }
  for (const notice of notices) lines.push(`${style.warn('Note:')} ${notice}.`)
  return lines
}

function changeText(change: ScoreEstimate | undefined): string {
  const text = formatEstimate(change)
  return change && change.mean > 0 ? `+${text}` : text
}

function componentText({ components }: RescoredSide, name: string): string {
  const component = components[name]
  return component ? formatScore(component.mean) : '–'
}
