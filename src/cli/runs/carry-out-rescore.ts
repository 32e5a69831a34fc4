import { rescoreRun, type Rescoring } from '../../eval/index.ts'
import { exitNotice } from '../process/exit-notice.ts'
import { exitCodes, type ExitCode } from '../process/exit-codes.ts'
import type { CommandIo } from '../process/io.ts'
import { formatQuantity } from '../format/count.ts'
import { nameUnreadable } from './name-unreadable.ts'
import { rescoreText } from './rescore-text.ts'
import { SlowProgress } from '../process/slow-progress.ts'
import { locateRun, readRun, runsRoot } from './stored-run.ts'
import { writeOutputFile } from '../process/write-output-file.ts'
import type { Invocation } from '../command-line/command.ts'
import type { rescoreFlags } from '../commands/rescore-command.ts'

/** Carries out `millrace rescore`: from its flags to its exit code. */
export async function carryOutRescore(
  { arguments: [name = '', environment], flags, prefixed }: Invocation<typeof rescoreFlags>,
  io: CommandIo,
): Promise<ExitCode> {
  const found = await locateRun(name, runsRoot(flags.runs, io), io)
  using _exit = exitNotice(io, 'The run is as it was.')
  return await readRun(found, io, async (reader) => {
    const rescoring = await rescoreRun(reader, {
      ...(environment !== undefined && { environment }),
      ...(prefixed['env'] && { options: prefixed['env'] }),
      ...(flags['no-setup'] && { setup: false }),
      ...(flags.judge && { judge: flags.judge }),
      ...(flags.concurrency !== undefined && { concurrency: flags.concurrency }),
    })
    await writeLines(rescoring, io, { asJson: flags.json === true, out: flags.out })
    const summary = rescoring.summary()
    if (flags.json) await io.stdout.line(JSON.stringify({ type: 'summary', ...summary }))
    else {
      const { isTTY, columns, style } = io.stdout
      for (const line of rescoreText(summary, { width: isTTY ? columns : 160, style })) await io.stdout.line(line)
    }
    nameUnreadable(summary, { found, io, tells: 'show' })
    if (summary.unreadable) return exitCodes.failed
    const { withoutTask, failures, notices } = summary
    return withoutTask + failures.length + notices.length > 0 ? exitCodes.unscored : exitCodes.ok
  })
}

/** Scores all rollouts, and writes their lines on the way. */
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
  using progress = new SlowProgress(io.stderr, 'scoring rollouts')
  for await (const rollout of rescoring) {
    progress.add()
    if (asJson) await io.stdout.line(JSON.stringify({ type: 'rollout', ...rollout }))
    yield `${JSON.stringify(rollout)}\n`
  }
}
