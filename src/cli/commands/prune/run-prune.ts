import { existsSync, realpathSync } from 'node:fs'
import { basename, dirname } from 'node:path'
import { MillraceError } from '../../../errors/index.ts'
import { pruneRuns, type FoundRun, type PrunedRun, type PruneOptions } from '../../../store/index.ts'
import { usageError } from '../../command-line/flag-value.ts'
import { exitCodes, type ExitCode } from '../../terminal/exit-codes.ts'
import type { CommandIo } from '../../terminal/io.ts'
import { formatBytes, formatQuantity, shellQuote } from '../../terminal/format.ts'
import { textTable } from '../../terminal/layout.ts'
import { emptyRootText, latestName, locateRun, runsRoot } from '../../stored-runs/stored-run.ts'
import type { Invocation } from '../../command-line/command.ts'
import { type FlagValues, definedFields } from '../../command-line/flags.ts'
import type { pruneFlags } from './prune-command.ts'

const defaultAgeMs = 30 * 86_400_000

export async function runPrune(
  { arguments: [name], flags }: Invocation<typeof pruneFlags>,
  io: CommandIo,
): Promise<ExitCode> {
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
    await writeTable(pruned, options, io)
  }
  return exitCodes.ok
}

type PruneFlags = FlagValues<typeof pruneFlags>

function whichRuns({ 'older-than': olderThan, keep }: PruneFlags): Pick<PruneOptions, 'olderThanMs' | 'keep'> {
  return definedFields({ olderThanMs: olderThan ?? (keep === undefined ? defaultAgeMs : undefined), keep })
}

/** The run that was named. Throws if it may not go: whoever names a run is told why it stays. */
async function namedRun(name: string, flags: PruneFlags, io: CommandIo): Promise<FoundRun> {
  if (flags['older-than'] !== undefined || flags.keep !== undefined) {
    throw usageError('give either the name of a run, or --older-than and --keep, but not both')
  }
  const root = runsRoot(flags.runs, io)
  const found = await locateRun(name, root, io)
  if (name === latestName && found.name !== name) {
    throw usageError(`to delete a run, give its own name; the newest one is ${found.name}`)
  }
  requireInside(root, found, io)
  if (found.run.state === 'running') throw inUse(found)
  if (found.run.state === 'unfinished' && !flags.unfinished) {
    throw usageError(`run ${found.name} could be continued; add --unfinished to delete it`)
  }
  return found
}

/** Refuses a run whose folder is not in the runs folder itself, or is there only as a link. */
function requireInside(root: string, { name, folder, isLink }: FoundRun, { program }: CommandIo): void {
  const place = realpathSync(folder)
  const isInside = existsSync(root) && dirname(place) === realpathSync(root)
  if (isInside && !isLink) return
  const why = isLink ? 'only a link here' : `in ${dirname(place)}, outside of the runs folder ${root}`
  const command = `${program} prune ${shellQuote([basename(place), '--runs', dirname(place)])}`
  throw usageError(`run ${name} is ${why}; to delete it there: ${command}`)
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

async function writeTable(pruned: readonly PrunedRun[], options: PruneOptions, { stdout }: CommandIo): Promise<void> {
  const rows = pruned.map((run) => [run.name, run.state, formatBytes(run.bytes), fate(run, options)])
  const titles = [{ title: 'run' }, { title: 'state' }, { title: 'size', align: 'right' as const }, { title: '' }]
  const table = textTable({ columns: titles, rows, width: stdout.tableWidth, style: stdout.style })
  await stdout.lines([...table, total(pruned, options)])
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
