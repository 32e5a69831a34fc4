import {
  type MessageDifference,
  type ReplayReport,
  replayRollout,
  replayRun,
  UnreadableRollouts,
} from '../../../eval/index.ts'
import { commonLength } from '../../../kit/index.ts'
import type { Message } from '../../../schema/index.ts'
import type { FoundRun, RunReader } from '../../../store/index.ts'
import type { Invocation } from '../../command-line/command.ts'
import { definedFields } from '../../command-line/flags.ts'
import { usageError } from '../../command-line/flag-value.ts'
import { findRolloutToRepeat, nameUnreadable } from '../../stored-runs/find-rollout.ts'
import { locateRun, readRun, runsRoot } from '../../stored-runs/stored-run.ts'
import { type ExitCode, exitCodes } from '../../terminal/exit-codes.ts'
import { formatCount, formatQuantity } from '../../terminal/format.ts'
import type { CommandIo } from '../../terminal/io.ts'
import { textTable } from '../../terminal/layout.ts'
import { DelayedProgress } from '../../terminal/output.ts'
import { exitNotice } from '../../terminal/signals.ts'
import { printable, printableLine, type Style } from '../../terminal/text.ts'
import type { replayFlags } from './replay-command.ts'

export async function runReplay(
  { arguments: [name = '', rollout], flags, prefixed }: Invocation<typeof replayFlags>,
  io: CommandIo,
): Promise<ExitCode> {
  if (rollout !== undefined && flags.all) {
    throw usageError(
      `--all replays every rollout of the run, so no rollout can be named: leave out --all, or ${rollout}`,
    )
  }
  if (rollout === undefined && !flags.all) {
    throw usageError('which rollout? Name one (millrace replay <run> 12-0), or give --all for every one of the run')
  }
  const found = await locateRun(name, runsRoot(flags.runs, io), io)
  const options = definedFields({ environment: flags.environment, options: prefixed['env'] })
  const asJson = flags.json === true
  using _exit = exitNotice(io, 'The run is unchanged.')
  return await readRun(found, async (reader) => {
    if (rollout === undefined) return await replayAll(reader, { found, io, asJson, limit: flags.limit ?? 5, options })
    const id = findRolloutToRepeat(rollout, reader, { found, stderr: io.stderr })
    const report = await replayRollout(reader, id, options)
    await show(report, io, asJson)
    return report.verdict === 'identical' ? exitCodes.ok : exitCodes.failed
  })
}

async function replayAll(
  reader: RunReader,
  how: { found: FoundRun; io: CommandIo; asJson: boolean; limit: number; options: Parameters<typeof replayRun>[1] },
): Promise<ExitCode> {
  const { found, io, asJson, limit, options } = how
  const counts = { identical: 0, different: 0, skipped: 0 }
  const damaged = new UnreadableRollouts()
  let shown = 0
  {
    using progress = new DelayedProgress(io.stderr, 'replaying rollouts')
    for await (const report of replayRun(reader, options)) {
      progress.add()
      const { verdict, rollout } = report
      if (verdict === 'unreadable') damaged.add(rollout)
      else counts[verdict] += 1
      if (io.stdout.readerGone.aborted) break
      if (asJson) await show(report, io, true)
      else if ((verdict === 'different' || verdict === 'skipped') && shown < limit) {
        shown += 1
        await show(report, io, false)
        await io.stdout.line('')
      }
    }
  }
  const rollouts = counts.identical + counts.different + counts.skipped
  const unreadable = damaged.snapshot()
  if (asJson) await io.stdout.line(JSON.stringify({ type: 'summary', rollouts, ...counts, ...unreadable }))
  else {
    const { style } = io.stdout
    const identical = style.good(`${formatCount(counts.identical)} identical`)
    const different = counts.different > 0 ? style.bad(`${formatCount(counts.different)} different`) : '0 different'
    const skipped =
      counts.skipped > 0 ? `, ${style.warn(`${formatCount(counts.skipped)} that cannot be replayed`)}` : ''
    const left = damaged.count > 0 ? `; ${style.bad(`${formatCount(damaged.count)} left out: damaged`)}` : ''
    await io.stdout.line(`${formatQuantity(rollouts, 'rollout')}: ${identical}, ${different}${skipped}${left}`)
  }
  nameUnreadable(unreadable, { found, io, tells: 'replay' })
  if (damaged.count > 0) return exitCodes.failed
  return counts.different > 0 || (counts.identical === 0 && counts.skipped > 0) ? exitCodes.failed : exitCodes.ok
}

async function show(report: ReplayReport, io: CommandIo, asJson: boolean): Promise<void> {
  const { isTTY, columns, style } = io.stdout
  const json = JSON.stringify({ type: 'rollout', ...report })
  await io.stdout.lines(asJson ? [json] : replayText(report, isTTY ? columns : 160, style))
}

function replayText(report: ReplayReport, width: number, style: Style): string[] {
  const { rollout, verdict, why, differences, omitted, first, hints } = report
  const lines = [`${style.bold(rollout)}  ${verdictText(report, style)}`]
  if (why !== undefined && verdict !== 'skipped')
    lines.push(style.warn(`It did not reach its end: ${printableLine(why)}`))
  if (differences.length > 0) {
    const rows = differences.map(({ session, what, recorded, replayed }) => [
      session === rollout ? what : `${session}: ${what}`,
      printableLine(recorded ?? '–'),
      printableLine(replayed ?? '–'),
    ])
    const titles = [{ title: 'what' }, { title: 'recorded', shrinks: true }, { title: 'replayed', shrinks: true }]
    lines.push('', ...textTable({ columns: titles, rows, width, style }))
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
  if (children.kept > 0)
    parts.push(`${childrenText(children.kept)} from the recording, like the tools that started them`)
  return `${style.good('identical')}: ${parts.join(', ')}, outcome ${outcome}, rewards and usage`
}

function childrenText(count: number): string {
  return count === 1 ? '1 child' : `${formatCount(count)} children`
}

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
