import { rescoreRun, type Rescoring } from '../../eval/index.ts'
import { defineCommand } from '../command-line/command.ts'
import { runsFlag } from '../command-line/common-flags.ts'
import { evalFlags } from '../eval/eval-flags.ts'
import { exitNotice } from '../process/exit-notice.ts'
import { exitCodes } from '../process/exit-codes.ts'
import type { CommandIo } from '../process/io.ts'
import { formatQuantity } from '../format/count.ts'
import { nameUnreadable } from '../runs/name-unreadable.ts'
import { rescoreText } from '../runs/rescore-text.ts'
import { SlowProgress } from '../process/slow-progress.ts'
import { locateRun, readRun, runsRoot, storedOptionPrefix } from '../runs/stored-run.ts'
import { writeOutputFile } from '../process/write-output-file.ts'

export const rescoreCommand = defineCommand({
  name: 'rescore',
  description:
    'Runs rewards over the rollouts that a run holds, without any model or tool, and compares the scores with those it had: ' +
    'after a reward was changed, or with those of another environment. Tasks are read again and must be what they were. ' +
    'Verdicts of judges are taken from the recording. The run itself stays as it is.',
  arguments: [
    { name: 'run', required: true, help: 'a run: its name, or the path of its folder' },
    {
      name: 'environment',
      required: false,
      help: 'whose rewards to use; those of the run’s own environment if not given',
    },
  ],
  flags: {
    'no-setup': {
      kind: 'switch',
      group: 'What to run',
      help: 'Do not run setup: rewards then see no state.',
    },
    judge: {
      kind: 'choice',
      choices: ['recorded', 'live'],
      group: 'What to run',
      help: 'Whether a question that was not asked when the run was made is asked now, or fails its reward.',
      default: 'recorded',
    },
    concurrency: evalFlags.concurrency,
    out: {
      kind: 'text',
      value: '<file>',
      group: 'Output',
      help: 'Write a JSON line for each rollout, over what the file holds: id, reward before and after, components, metrics.',
    },
    json: { kind: 'switch', group: 'Output', help: 'The same lines to stdout, and the summary as the last one.' },
    runs: runsFlag,
  },
  prefixes: { env: storedOptionPrefix },
  examples: [
    { command: 'millrace rescore nightly', explanation: 'with the rewards as they are now' },
    {
      command: 'millrace rescore nightly ./stricter.ts --out stricter.jsonl',
      explanation: 'with those of another environment',
    },
    { command: 'millrace rescore nightly --judge live', explanation: 'asking the judge what it was not asked before' },
  ],
  exitCodes: [
    { code: exitCodes.ok, meaning: 'every rollout that had a score, or failed to get one, has one' },
    {
      code: exitCodes.failed,
      meaning:
        'there is no such run, it could not be read or written, or rollouts in it are damaged: the others are there',
    },
    { code: exitCodes.usage, meaning: 'the command line or an option is wrong' },
    {
      code: exitCodes.unscored,
      meaning:
        'some rollouts could not be scored, as their task is gone or a reward failed; or the scores may be wrong, as a reward looked at a state that tools or updates change',
    },
  ],
  async run({ arguments: [name = '', environment], flags, prefixed }, io) {
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
  },
})

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
