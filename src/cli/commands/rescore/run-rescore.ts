import {
  type RescoredSide,
  rescoreRun,
  type RescoreSummary,
  type Rescoring,
  type ScoreEstimate,
} from '../../../eval/index.ts'
import type { Invocation } from '../../command-line/command.ts'
import { definedFields } from '../../command-line/flags.ts'
import { nameUnreadable } from '../../stored-runs/find-rollout.ts'
import { locateRun, readRun, runsRoot } from '../../stored-runs/stored-run.ts'
import { type ExitCode, exitCodes } from '../../terminal/exit-codes.ts'
import {
  formatCount,
  formatDuration,
  formatEstimate,
  formatMoney,
  formatQuantity,
  formatScore,
  intervalNote,
} from '../../terminal/format.ts'
import type { CommandIo } from '../../terminal/io.ts'
import { textTable } from '../../terminal/layout.ts'
import { DelayedProgress } from '../../terminal/output.ts'
import { exitNotice } from '../../terminal/signals.ts'
import { printableLine, type Style } from '../../terminal/text.ts'
import { writeOutputFile } from '../../terminal/write-output-file.ts'
import type { rescoreFlags } from './rescore-command.ts'

export async function runRescore(
  { arguments: [name = '', environment], flags, prefixed }: Invocation<typeof rescoreFlags>,
  io: CommandIo,
): Promise<ExitCode> {
  const found = await locateRun(name, runsRoot(flags.runs, io), io)
  using _exit = exitNotice(io, 'The run is unchanged.')
  return await readRun(found, async (reader) => {
    const rescoring = await rescoreRun(reader, {
      ...definedFields({ environment, options: prefixed['env'], judge: flags.judge, concurrency: flags.concurrency }),
      ...(flags['no-setup'] && { setup: false }),
    })
    await writeLines(rescoring, io, { asJson: flags.json === true, out: flags.out })
    const summary = rescoring.summary()
    if (flags.json) await io.stdout.line(JSON.stringify({ type: 'summary', ...summary }))
    else {
      const { isTTY, columns, style } = io.stdout
      await io.stdout.lines(rescoreText(summary, { width: isTTY ? columns : 160, style }))
    }
    nameUnreadable(summary, { found, io, tells: 'show' })
    if (summary.unreadable) return exitCodes.failed
    const { withoutTask, failures, notices } = summary
    return withoutTask + failures.length + notices.length > 0 ? exitCodes.unscored : exitCodes.ok
  })
}

async function writeLines(
  rescoring: Rescoring,
  io: CommandIo,
  { asJson, out }: { asJson: boolean; out: string | undefined },
): Promise<void> {
  const lines = scoredLines(rescoring, io, asJson)
  if (out === undefined) {
    for await (const _line of lines) if (io.stdout.readerGone.aborted) return
    return
  }
  // The file gets all lines, even if the reader of stdout is gone.
  const where = await writeOutputFile(lines, { name: out, flag: '--out', cwd: io.cwd })
  void io.stderr.line(`wrote ${formatQuantity(rescoring.summary().rollouts, 'rollout')} to ${where}`)
}

/** Yields a line for each rollout. With `asJson`, a line also goes to stdout. */
async function* scoredLines(rescoring: Rescoring, io: CommandIo, asJson: boolean): AsyncGenerator<string, void, void> {
  using progress = new DelayedProgress(io.stderr, 'scoring rollouts')
  for await (const rollout of rescoring) {
    progress.add()
    if (asJson) await io.stdout.line(JSON.stringify({ type: 'rollout', ...rollout }))
    yield `${JSON.stringify(rollout)}\n`
  }
}

function rescoreText(summary: RescoreSummary, { width, style }: { width: number; style: Style }): string[] {
  const { run, environment, rollouts, before, after, change, wallMs } = summary
  const names = new Set([...Object.keys(before.components), ...Object.keys(after.components)])
  const rows = [
    ['score', formatEstimate(before.score), formatEstimate(after.score), changeText(change)],
    ...Array.from(names, (name) => [
      `  ${printableLine(name)}`,
      componentText(before, name),
      componentText(after, name),
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
    ...textTable({ columns: titles, rows, width, style }),
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
    const why = 'their tasks have changed, or are gone and not stored'
    lines.push(style.warn(`${formatQuantity(withoutTask, 'rollout')} not scored: ${why}`))
  }
  for (const { outcome, message, count } of unscorable) {
    const first = message === '' ? '' : `${count > 1 ? '; the first' : ''}: ${printableLine(message)}`
    lines.push(`${formatQuantity(count, 'rollout')} had no score before either, with outcome ${outcome}${first}`)
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
