import { lstat, readdir, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { MillraceError } from '../errors/index.ts'
import { RunLock } from './_run-lock.ts'
import { findRuns, type FoundRun } from './find-runs.ts'
import type { RunState } from './run-file.ts'
import { folderFailure } from './run-folder.ts'

export interface PruneOptions {
  /** Only runs whose last sitting ended, or began, longer ago than this. */
  readonly olderThanMs?: number
  /** The newest so many of those that could go stay. */
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
  /** False in a dry run, and for one that somebody took up in the meantime. */
  readonly removed: boolean
}

/** Deletes old runs, never one that is in use and never a folder that does not read as a run. */
export async function pruneRuns(root: string, options: PruneOptions): Promise<PrunedRun[]> {
  const { olderThanMs, keep } = options
  if (olderThanMs === undefined && keep === undefined) {
    throw new MillraceError('usage', 'say which runs may go: those older than some age, or all but the newest few')
  }
  const { runs } = await findRuns(root)
  const now = Date.now()
  const pruned: PrunedRun[] = []
  for (const found of runs.filter(({ run }) => mayGo(run.state, options)).slice(keep ?? 0)) {
    if (olderThanMs !== undefined && now - lastUsedAt(found) < olderThanMs) continue
    const { name, folder } = found
    const bytes = await folderBytes(folder)
    const removed = options.dryRun ? false : await remove(root, found)
    pruned.push({ name, folder, state: found.run.state, bytes, removed })
  }
  return pruned
}

function mayGo(state: RunState, { includeUnfinished = false }: PruneOptions): boolean {
  return state === 'complete' || (includeUnfinished && state === 'unfinished')
}

function lastUsedAt({ run }: FoundRun): number {
  const sitting = run.sittings.at(-1)
  return Date.parse(sitting?.endedAt ?? sitting?.startedAt ?? run.createdAt)
}

/** Holds the lock meanwhile, and hides the folder first: what is half deleted never looks like a run. */
async function remove(root: string, { name, folder }: FoundRun): Promise<boolean> {
  try {
    using _lock = RunLock.acquire(folder)
    const hidden = join(root, `.pruned-${name}-${process.pid}`)
    await rename(folder, hidden)
    await rm(hidden, { recursive: true, force: true })
    return true
  } catch (error) {
    if (error instanceof MillraceError && error.code === 'run_in_use') return false
    throw folderFailure(error, folder)
  }
}

async function folderBytes(folder: string): Promise<number> {
  let bytes = 0
  for (const entry of await readdir(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name)
    bytes += entry.isDirectory() ? await folderBytes(path) : (await lstat(path)).size
  }
  return bytes
}
