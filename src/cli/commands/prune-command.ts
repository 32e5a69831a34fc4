import { pruneRuns, type PrunedRun, type PruneOptions } from '../../store/index.ts'
import { defineCommand } from '../command-line/command.ts'
import { runsFlag } from '../command-line/common-flags.ts'
import { exitCodes } from '../process/exit-codes.ts'
import { formatBytes } from '../format/bytes.ts'
import { columns } from '../format/columns.ts'
import { formatQuantity } from '../format/count.ts'
import { runsRoot } from '../runs/stored-run.ts'

const defaultAgeMs = 30 * 86_400_000

export const pruneCommand = defineCommand({
  name: 'prune',
  description:
    'Deletes old runs. Without --yes it only lists what would go. A run that somebody is working on never goes, and one ' +
    'that could be continued only with --unfinished.',
  arguments: [],
  flags: {
    'older-than': {
      kind: 'duration',
      value: '<duration>',
      group: 'What may go',
      help: 'Runs last used longer ago than this: 12h, 30d. [default: 30d, unless --keep is given]',
    },
    keep: { kind: 'integer', value: '<count>', group: 'What may go', help: 'All but the newest so many.' },
    unfinished: { kind: 'switch', group: 'What may go', help: 'Also runs that could be continued.' },
    yes: { kind: 'switch', group: 'What to do', help: 'Delete them.' },
    runs: runsFlag,
  },
  examples: [
    { command: 'millrace prune', explanation: 'what is older than 30 days' },
    { command: 'millrace prune --older-than 7d --yes', explanation: 'delete what is older than a week' },
    { command: 'millrace prune --keep 10 --unfinished --yes', explanation: 'delete all but the ten newest' },
  ],
  exitCodes: [
    { code: exitCodes.ok, meaning: 'listed or deleted, also where there was nothing to' },
    { code: exitCodes.failed, meaning: 'something could not be deleted' },
    { code: exitCodes.usage, meaning: 'the command line is wrong' },
  ],
  async run({ flags }, io) {
    const { 'older-than': olderThan, keep } = flags
    const olderThanMs = olderThan ?? (keep === undefined ? defaultAgeMs : undefined)
    const options: PruneOptions = {
      ...(olderThanMs !== undefined && { olderThanMs }),
      ...(keep !== undefined && { keep }),
      ...(flags.unfinished && { includeUnfinished: true }),
      dryRun: flags.yes !== true,
    }
    const root = runsRoot(flags.runs, io)
    const pruned = await pruneRuns(root, options)
    if (pruned.length === 0) {
      const others = flags.unfinished
        ? []
        : await pruneRuns(root, { ...options, includeUnfinished: true, dryRun: true })
      const hint =
        others.length === 0
          ? ''
          : `; --unfinished: also ${formatQuantity(others.length, 'run')} that could be continued`
      void io.stdout.line(`nothing to delete in ${root}${hint}`)
      return exitCodes.ok
    }
    const width = io.stdout.isTTY ? io.stdout.columns : Number.POSITIVE_INFINITY
    const rows = pruned.map((run) => [run.name, run.state, formatBytes(run.bytes), fate(run, options)])
    const titles = [{ title: 'run' }, { title: 'state' }, { title: 'size', align: 'right' as const }, { title: '' }]
    for (const line of columns({ columns: titles, rows, width, style: io.stdout.style })) void io.stdout.line(line)
    void io.stdout.line(total(pruned, options))
    return exitCodes.ok
  },
})

function fate({ removed }: PrunedRun, { dryRun }: PruneOptions): string {
  if (dryRun) return ''
  return removed ? 'deleted' : 'kept: in use again'
}

function total(pruned: readonly PrunedRun[], { dryRun }: PruneOptions): string {
  const gone = dryRun ? pruned : pruned.filter(({ removed }) => removed)
  const bytes = formatBytes(gone.reduce((sum, run) => sum + run.bytes, 0))
  const what = formatQuantity(gone.length, 'run')
  return dryRun ? `${what}, ${bytes}; --yes deletes ${gone.length === 1 ? 'it' : 'them'}` : `${what} deleted, ${bytes}`
}
