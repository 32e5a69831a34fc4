import { existsSync, statSync } from 'node:fs'
import { lstat, readdir, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { MillraceError } from '../../errors/index.ts'
import { RunLock } from './run-lock.ts'
import { findRuns, type FoundRun } from './find-runs.ts'
import { readRunFile, type RunFile, type RunState } from './run-file.ts'
import { folderFailure } from './failures.ts'
import { runFiles } from './run-folder.ts'

export interface PruneOptions {
  readonly name?: string
  /** Only runs whose last launch ended longer ago than this or, if it was killed, last wrote something. */
  readonly olderThanMs?: number
  /** How many of the runs that could go stay, the newest ones. */
  readonly keep?: number
  /** Also runs that could still be resumed. */
  readonly includeUnfinished?: boolean
  readonly dryRun?: boolean
}

export interface PrunedRun {
  readonly name: string
  readonly folder: string
  readonly state: RunState
  readonly bytes: number
  /** False in a dry run, and for a run that somebody resumed or deleted in the meantime. */
  readonly removed: boolean
}

/** The name prefix of a run that is being deleted, so that a half-deleted folder never looks like a run. */
const hiddenPrefix = '.pruned-'

/** Deletes old runs, never one that is in use and never a folder that does not read as a run. */
export async function pruneRuns(root: string, options: PruneOptions): Promise<PrunedRun[]> {
  const { name: wanted, olderThanMs, keep, dryRun = false } = options
  if (wanted === undefined && olderThanMs === undefined && keep === undefined) {
    throw new MillraceError(
      'usage',
      'name the runs to delete: one run by its name, runs older than a given age, or all but the newest few',
    )
  }
  const { runs } = await findRuns(root)
  const pruned: PrunedRun[] = []
  // A run that lies elsewhere stays: only the link to it is below this root.
  const prunable = runs.filter(({ isLink, run }) => mayGo(run.state, options) && !isLink)
  for (const found of prunable.slice(keep ?? 0)) {
    const { name, folder, run } = found
    if ((wanted !== undefined && name !== wanted) || !isOld(folder, run, options)) continue
    const bytes = await folderBytes(folder)
    // Another process has deleted the run meanwhile.
    if (bytes === undefined) continue
    const removed = dryRun ? false : await remove(root, found, options)
    pruned.push({ name, folder, state: run.state, bytes, removed })
  }
  if (!dryRun) await removeHidden(root)
  return pruned
}

function mayGo(state: RunState, { includeUnfinished = false }: PruneOptions): boolean {
  return state === 'complete' || (includeUnfinished && state === 'unfinished')
}

function isOld(folder: string, run: RunFile, { olderThanMs }: PruneOptions): boolean {
  return olderThanMs === undefined || Date.now() - lastUsedAt(folder, run) >= olderThanMs
}

function lastUsedAt(folder: string, { launches, createdAt }: RunFile): number {
  const launch = launches.at(-1)
  if (launch?.endedAt !== undefined) return Date.parse(launch.endedAt)
  // A killed launch may have worked for weeks; its files say until when.
  const files = [runFiles.database, `${runFiles.database}-wal`]
  const written = files.map((name) => statSync(join(folder, name), { throwIfNoEntry: false })?.mtimeMs ?? 0)
  return Math.max(Date.parse(launch?.startedAt ?? createdAt), ...written)
}

/** Removes a run under its lock, after its folder was renamed. */
async function remove(root: string, { name, folder }: FoundRun, options: PruneOptions): Promise<boolean> {
  try {
    using _lock = RunLock.acquire(folder)
    // Somebody may have resumed the run since it was found, and closed it again.
    const run = readRunFile(folder)
    const state = run?.state === 'running' ? 'unfinished' : run?.state
    if (!run || !state || !mayGo(state, options) || !isOld(folder, run, options)) return false
    const hidden = join(root, `${hiddenPrefix}${name}-${process.pid}`)
    await rename(folder, hidden)
    await rm(hidden, { recursive: true, force: true })
    return true
  } catch (error) {
    if ((error instanceof MillraceError && error.code === 'run_in_use') || !existsSync(folder)) return false
    throw folderFailure(error, folder)
  }
}

/** Removes hidden folders that killed processes left. Another process that is still removing one does not mind. */
async function removeHidden(root: string): Promise<void> {
  const names = await readdir(root).catch(() => [])
  for (const name of names.filter((each) => each.startsWith(hiddenPrefix))) {
    const hidden = join(root, name)
    try {
      await rm(hidden, { recursive: true, force: true })
    } catch (error) {
      throw folderFailure(error, hidden)
    }
  }
}

async function folderBytes(folder: string): Promise<number | undefined> {
  try {
    let bytes = 0
    for (const entry of await readdir(folder, { withFileTypes: true })) {
      const path = join(folder, entry.name)
      bytes += (entry.isDirectory() ? await folderBytes(path) : (await lstat(path)).size) ?? 0
    }
    return bytes
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw error
  }
}
