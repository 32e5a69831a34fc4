import { replayRollout, replayRun, UnreadableRollouts, type ReplayReport } from '../../eval/index.ts'
import type { FoundRun, RunReader } from '../../store/index.ts'
import { exitNotice } from '../process/exit-notice.ts'
import { exitCodes, type ExitCode } from '../process/exit-codes.ts'
import { usageError } from '../command-line/flag-value.ts'
import { formatCount, formatQuantity } from '../format/count.ts'
import type { CommandIo } from '../process/io.ts'
import { findRolloutToRepeat } from './find-rollout-to-repeat.ts'
import { nameUnreadable } from './name-unreadable.ts'
import { replayText } from './replay-text.ts'
import { SlowProgress } from '../process/slow-progress.ts'
import { locateRun, readRun, runsRoot } from './stored-run.ts'
import type { Invocation } from '../command-line/command.ts'
import type { replayFlags } from '../commands/replay-command.ts'

/** Carries out `millrace replay`: from its flags to its exit code. */
export async function carryOutReplay(
  { arguments: [name = '', rollout], flags, prefixed }: Invocation<typeof replayFlags>,
  io: CommandIo,
): Promise<ExitCode> {
  if (rollout !== undefined && flags.all) {
    throw usageError(`--all replays every rollout of the run and takes none: leave out --all, or ${rollout}`)
  }
  if (rollout === undefined && !flags.all) {
    throw usageError('which rollout? Name one (millrace replay <run> 12-0), or give --all for every one of the run')
  }
  const found = await locateRun(name, runsRoot(flags.runs, io), io)
  const options = {
    ...(flags.environment !== undefined && { environment: flags.environment }),
    ...(prefixed['env'] && { options: prefixed['env'] }),
  }
  const asJson = flags.json === true
  using _exit = exitNotice(io, 'The run is as it was.')
  return await readRun(found, io, async (reader) => {
    if (rollout === undefined) return await replayAll(reader, { found, io, asJson, limit: flags.limit ?? 5, options })
    const report = await replayRollout(
      reader,
      findRolloutToRepeat(rollout, reader, { found, stderr: io.stderr }),
      options,
    )
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
    using progress = new SlowProgress(io.stderr, 'replaying rollouts')
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
  if (asJson) {
    await io.stdout.line(JSON.stringify({ type: 'rollout', ...report }))
    return
  }
  const { isTTY, columns, style } = io.stdout
  for (const line of replayText(report, { width: isTTY ? columns : 160, style })) await io.stdout.line(line)
}
