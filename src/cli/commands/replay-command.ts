import { replayRollout, replayRun, UnreadableRollouts, type ReplayReport } from '../../eval/index.ts'
import type { FoundRun, RunReader } from '../../store/index.ts'
import { defineCommand } from '../command-line/command.ts'
import { runsFlag } from '../command-line/common-flags.ts'
import { exitNotice } from '../process/exit-notice.ts'
import { exitCodes, type ExitCode } from '../process/exit-codes.ts'
import { usageError } from '../command-line/flag-value.ts'
import { formatCount, formatQuantity } from '../format/count.ts'
import type { CommandIo } from '../process/io.ts'
import { findRolloutToRepeat } from '../runs/find-rollout-to-repeat.ts'
import { nameUnreadable } from '../runs/name-unreadable.ts'
import { replayText } from '../runs/replay-text.ts'
import { SlowProgress } from '../process/slow-progress.ts'
import { locateRun, readRun, runsRoot, storedOptionPrefix } from '../runs/stored-run.ts'

export const replayCommand = defineCommand({
  name: 'replay',
  description:
    'Runs a stored rollout again against its own recording and compares the two, message for message: the agent, updates, ' +
    'children and rewards run, and everything they hear from outside is what was recorded. No model, no judge, no tool ' +
    'server is asked; of the environment’s own tools only those run that rebuild its state (resume: rerun). What is asked ' +
    'for and was not recorded is a difference, never a call.',
  arguments: [
    { name: 'run', required: true, help: 'a run: its name, or the path of its folder' },
    {
      name: 'rollout',
      required: false,
      help: 'the rollout, such as 12-0 (task 12, first attempt), or a task that has one alone',
    },
  ],
  flags: {
    all: { kind: 'switch', group: 'What to replay', help: 'Every rollout of the run that has ended.' },
    environment: {
      kind: 'text',
      value: '<module>',
      group: 'What to replay',
      help: 'The environment, if it is not where it was when the run was made.',
    },
    limit: {
      kind: 'integer',
      value: '<count>',
      min: 1,
      group: 'Output',
      help: 'With --all: how many that differ are shown.',
      default: '5',
    },
    json: {
      kind: 'switch',
      group: 'Output',
      help: 'One JSON object a line for each rollout; with --all a summary last.',
    },
    runs: runsFlag,
  },
  prefixes: { env: { ...storedOptionPrefix, group: 'What to replay' } },
  examples: [
    {
      command: 'millrace replay nightly 12-0',
      explanation: 'whether the rollout comes to the same again, and if not, where',
    },
    {
      command: 'millrace replay nightly --all',
      explanation: 'the same for the whole run, after a change to the environment',
    },
    {
      command: 'millrace replay nightly --all --json | jq \'select(.verdict == "different") | .rollout\'',
      explanation: 'which ones differ',
    },
  ],
  exitCodes: [
    { code: exitCodes.ok, meaning: 'what was replayed is identical' },
    {
      code: exitCodes.failed,
      meaning: 'something differs or is damaged, or there is no such run or rollout, or it cannot be replayed',
    },
    { code: exitCodes.usage, meaning: 'the command line is wrong' },
  ],
  async run({ arguments: [name = '', rollout], flags, prefixed }, io) {
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
  },
})

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
