import type { Summary } from '../../eval/index.ts'
import { outcomeNames, outcomes, type Usage } from '../../schema/index.ts'
import { formatCompactCount, formatCount, formatQuantity, formatShare } from '../format/count.ts'
import { formatDuration } from '../format/duration.ts'
import { formatMoney } from '../format/money.ts'
import { panel, type PanelSection } from '../format/panel.ts'
import { printableLine } from '../format/printable.ts'
import { formatEstimate, formatScore } from '../format/score.ts'
import type { Style } from '../format/style.ts'
import { padText } from '../format/text-width.ts'

const widest = 80
const labelColumns = 10
const cellColumns = 9
/** Columns of figures beside the label, at the widest. */
const cellsPerLine = 7
const shownComponents = 12

/** What a summary of a stored run adds or lacks: while it goes on, it has no end yet. */
export type ShownSummary = Omit<Summary, 'end' | 'tries'> & {
  readonly end: Summary['end'] | 'running' | 'unfinished'
  readonly tries?: Summary['tries']
}

const ends: Readonly<Record<ShownSummary['end'], string>> = {
  complete: 'complete',
  drained: 'drained, can be continued',
  stopped: 'stopped, can be continued',
  max_cost: 'cost limit reached',
  failed: 'failed',
  running: 'running',
  unfinished: 'unfinished, can be continued',
}

/** The results of a run as a box, and the commands that look further. */
export function summaryText(summary: ShownSummary, frame: { readonly columns: number; readonly style: Style }): string {
  const { style } = frame
  const lines = panel({
    sections: [
      {
        title: `${printableLine(summary.environment)} · ${printableLine(summary.model)}`,
        lines: rewardLines(summary, style),
      },
      { title: `pass: a reward of at least ${summary.passThreshold}`, lines: passLines(summary, style) },
      ...componentSections(summary, style),
      { title: 'outcomes', lines: outcomeLines(summary, style) },
      { title: 'time', lines: durationLines(summary, style) },
      { title: 'usage', lines: usageLines(summary, style) },
    ],
    note: `${ends[summary.end]} · ${formatDuration(summary.wallMs)}`,
    columns: Math.max(40, Math.min(widest, frame.columns)),
    style,
  })
  return `${[...lines, ...nextLines(summary, style)].join('\n')}\n`
}

function rewardLines(summary: ShownSummary, style: Style): readonly string[] {
  const { score } = summary
  const explanation = score && score.tasks > 1 ? '95% interval, clustered by task' : 'too few tasks for an interval'
  const voided = summary.voided > 0 ? ` · ${formatCount(summary.voided)} voided with their group` : ''
  return [
    row('reward', `${style.bold(formatEstimate(score))}   ${score ? style.dim(explanation) : ''}`, style),
    row(
      'over',
      `${formatCount(summary.scored)} of ${formatQuantity(summary.rollouts, 'rollout')} scored · ${formatQuantity(summary.tasks, 'task')}${voided}`,
      style,
    ),
  ]
}

function passLines(summary: ShownSummary, style: Style): readonly string[] {
  const lines: string[] = []
  for (let start = 0; start < summary.pass.length; start += cellsPerLine) {
    const cells = summary.pass.slice(start, start + cellsPerLine)
    lines.push(
      row('k', figures(cells.map(({ k }) => style.dim(String(k)))), style),
      row('pass@k', figures(cells.map(({ atK }) => formatScore(atK))), style),
      row('pass^k', figures(cells.map(({ hatK }) => formatScore(hatK))), style),
    )
  }
  const tasks = summary.pass[0]?.tasks ?? 0
  const condition = summary.attemptsPerTask === 1 ? 'scored' : `with all ${summary.attemptsPerTask} attempts scored`
  lines.push(row('over', `${formatCount(tasks)} of ${formatQuantity(summary.tasks, 'task')} ${condition}`, style))
  return lines
}

function componentSections(summary: ShownSummary, style: Style): readonly PanelSection[] {
  const components = Object.entries(summary.components)
  // A single component is the reward itself, which is shown already.
  if (components.length === 0 || (components.length === 1 && components[0]?.[1].weight === 1)) return []
  const nameColumns = 26
  const line = (name: string, cells: readonly string[]): string => padText(name, nameColumns) + figures(cells)
  const lines = components
    .slice(0, shownComponents)
    .map(([name, { mean, weight, rollouts }]) =>
      line(printableLine(name), [formatScore(mean), weight === 0 ? 'metric' : String(weight), formatCount(rollouts)]),
    )
  const more = components.length - shownComponents
  if (more > 0) lines.push(style.dim(`and ${more} more: millrace show ${summary.run} --json`))
  return [{ title: 'components', lines: [style.dim(line('', ['mean', 'weight', 'rollouts'])), ...lines] }]
}

function outcomeLines(summary: ShownSummary, style: Style): readonly string[] {
  const nameColumns = 20
  const lines = outcomeNames.flatMap((name) => {
    const count = summary.outcomes[name]
    if (count === 0) return []
    const { scored, truncated } = outcomes[name]
    const meaning = truncated ? 'scored, truncated' : scored ? 'scored' : 'not scored'
    const label = padText(name, nameColumns)
    const tinted = !scored ? style.bad(label) : truncated ? style.warn(label) : style.good(label)
    const share = formatShare(count, summary.rollouts)
    return [`${tinted}${figures([formatCount(count), share])}   ${style.dim(meaning)}`]
  })
  const rest = lines.length === 0 ? 'all' : 'all others'
  return [...lines, style.dim(`${padText(rest, nameColumns)}${figures(['0'])}`)]
}

function durationLines(summary: ShownSummary, style: Style): readonly string[] {
  const { wall, model, tools, reward, wait } = summary.durations
  const columns = [wall, model, tools, reward, wait]
  const titles = ['wall', 'model', 'tools', 'reward', 'wait']
  return [
    style.dim(row('', figures(titles), style)),
    row('p50', figures(columns.map(({ p50Ms }) => formatDuration(p50Ms))), style),
    row('p95', figures(columns.map(({ p95Ms }) => formatDuration(p95Ms))), style),
    row('rate', `${summary.perSecond.toFixed(1)} rollouts/s`, style),
  ]
}

function usageLines(summary: ShownSummary, style: Style): readonly string[] {
  const lines = [row('tokens', tokens(summary.usage), style)]
  if (summary.judgeUsage.calls > 0) lines.push(row('judge', tokens(summary.judgeUsage), style))
  const { calls, tries } = summary.tries ?? { calls: 0, tries: 0 }
  if (calls > 0) {
    const again =
      tries > calls ? `, ${formatQuantity(tries, 'try').replace(/trys$/, 'tries')}` : ', all at the first try'
    lines.push(row('calls', `${formatCount(calls)}${again}`, style))
  }
  lines.push(row('cost', formatMoney(summary.cost), style))
  return lines
}

function tokens(usage: Usage): string {
  const cached = usage.cachedInput > 0 ? ` (${formatShare(usage.cachedInput, usage.input)} cached)` : ''
  const reasoning = usage.reasoning > 0 ? ` (${formatShare(usage.reasoning, usage.output)} reasoning)` : ''
  return `${formatCompactCount(usage.input)} in${cached} · ${formatCompactCount(usage.output)} out${reasoning}`
}

function nextLines(summary: ShownSummary, style: Style): readonly string[] {
  const failed = outcomeNames.find((name) => summary.outcomes[name] > 0 && !outcomes[name].scored)
  const commands = [`millrace show ${summary.run} 0-0`, `millrace export ${summary.run}`]
  if (failed) commands.unshift(`millrace show ${summary.run} --outcome ${failed}`)
  return [
    `  ${style.dim('folder')}  ${summary.folder}`,
    ...commands.map((command, index) => `  ${style.dim(index === 0 ? 'next  ' : '      ')}  ${style.accent(command)}`),
  ]
}

function row(label: string, text: string, style: Style): string {
  return `${style.dim(padText(label, labelColumns))}${text}`
}

function figures(cells: readonly string[]): string {
  return cells.map((cell) => padText(cell, cellColumns, 'right')).join('')
}
