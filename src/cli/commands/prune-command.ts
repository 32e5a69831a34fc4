import { realpathSync } from 'node:fs'
import { dirname } from 'node:path'
import { MillraceError } from '../../errors/index.ts'
import { pruneRuns, type FoundRun, type PrunedRun, type PruneOptions } from '../../store/index.ts'
import { defineCommand } from '../command-line/command.ts'
import { runsFlag } from '../command-line/common-flags.ts'
import { usageError } from '../command-line/flag-value.ts'
import { exitCodes } from '../process/exit-codes.ts'
import type { CommandIo } from '../process/io.ts'
import { formatBytes } from '../format/bytes.ts'
import { columns } from '../format/columns.ts'
import { formatQuantity } from '../format/count.ts'
import { emptyRootText, locateRun, runsRoot } from '../runs/stored-run.ts'

const defaultAgeMs = 30 * 86_400_000

export const pruneCommand = defineCommand({
  name: 'prune',
  description:
    'Deletes old runs, or one by its name. Without --yes it only lists what would go. A run that somebody is working on never goes, and one ' +
    'that could be continued only with --unfinished.',
  arguments: [{ name: 'run', required: false, help: 'one run, however new: its name, or the path of its folder' }],
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
    json: { kind: 'switch', group: 'What to do', help: 'A JSON line for each run, and whether it was removed.' },
    runs: runsFlag,
  },
  examples: [
    { command: 'millrace prune', explanation: 'what is older than 30 days' },
    { command: 'millrace prune --older-than 7d --yes', explanation: 'delete what is older than a week' },
    { command: 'millrace prune nightly --yes', explanation: 'delete the run "nightly"' },
    { command: 'millrace prune --keep 10 --unfinished --yes', explanation: 'delete all but the ten newest' },
  ],
  exitCodes: [
    { code: exitCodes.ok, meaning: 'listed or deleted, also where there was nothing to' },
    {
      code: exitCodes.failed,
      meaning: 'something could not be deleted, or the run that was named is in use or not there',
    },
    { code: exitCodes.usage, meaning: 'the command line is wrong' },
  ],
  async run({ arguments: [name], flags }, io) {
    const named = name === undefined ? undefined : await namedRun(name, flags, io)
    const root = named ? dirname(named.folder) : runsRoot(flags.runs, io)
    const options: PruneOptions = {
      ...(named ? { name: named.name } : whichRuns(flags)),
      ...(flags.unfinished && { includeUnfinished: true }),
      dryRun: flags.yes !== true,
    }
    const pruned = await pruneRuns(root, options)
    // Somebody took it up since it was found.
    if (named && !options.dryRun && !pruned[0]?.removed) throw inUse(named)
    if (flags.json) {
      for (const { name: run, ...rest } of pruned) void io.stdout.line(JSON.stringify({ run, ...rest }))
    } else if (pruned.length === 0) {
      void io.stdout.line(`nothing to delete in ${emptyRootText(root)}${await unfinishedHint(root, options)}`)
    } else {
      writeTable(pruned, options, io)
    }
    return exitCodes.ok
  },
})

interface PruneFlags {
  readonly 'older-than'?: number
  readonly keep?: number
  readonly unfinished?: true
  readonly runs?: string
}

function whichRuns({ 'older-than': olderThan, keep }: PruneFlags): Pick<PruneOptions, 'olderThanMs' | 'keep'> {
  const olderThanMs = olderThan ?? (keep === undefined ? defaultAgeMs : undefined)
  return { ...(olderThanMs !== undefined && { olderThanMs }), ...(keep !== undefined && { keep }) }
}

/** The run that was named. Throws if it may not go: whoever names a run is told why it stays. */
async function namedRun(name: string, flags: PruneFlags, io: CommandIo): Promise<FoundRun> {
  if (flags['older-than'] !== undefined || flags.keep !== undefined) {
    throw usageError('name a run, or say which with --older-than and --keep, but not both')
  }
  const found = await locateRun(name, runsRoot(flags.runs, io), io)
  if (found.isLink) {
    throw usageError(`run ${found.name} is only a link here; name the folder itself: ${realpathSync(found.folder)}`)
  }
  if (found.run.state === 'running') throw inUse(found)
  if (found.run.state === 'unfinished' && !flags.unfinished) {
    throw usageError(`run ${found.name} could be continued; --unfinished deletes it all the same`)
  }
  return found
}

function inUse({ name }: FoundRun): MillraceError {
  return new MillraceError('run_in_use', `run ${name} is in use and was not deleted; try again when it has ended`)
}

async function unfinishedHint(root: string, options: PruneOptions): Promise<string> {
  if (options.includeUnfinished) return ''
  const others = await pruneRuns(root, { ...options, includeUnfinished: true, dryRun: true })
  if (others.length === 0) return ''
  return `; --unfinished: also ${formatQuantity(others.length, 'run')} that could be continued`
}

function writeTable(pruned: readonly PrunedRun[], options: PruneOptions, { stdout }: CommandIo): void {
  const width = stdout.isTTY ? stdout.columns : Number.POSITIVE_INFINITY
  const rows = pruned.map((run) => [run.name, run.state, formatBytes(run.bytes), fate(run, options)])
  const titles = [{ title: 'run' }, { title: 'state' }, { title: 'size', align: 'right' as const }, { title: '' }]
  for (const line of columns({ columns: titles, rows, width, style: stdout.style })) void stdout.line(line)
  void stdout.line(total(pruned, options))
}

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
