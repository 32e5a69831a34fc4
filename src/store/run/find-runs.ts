import { existsSync, statSync } from 'node:fs'
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { MillraceError } from '../../errors/index.ts'
import { RunLock } from './run-lock.ts'
import { readRunFile, type RunFile } from './run-file.ts'
import { runFiles } from './run-folder.ts'

/** A run as a listing shows it. `state` is `running` only while a process holds the run's lock. */
export interface FoundRun {
  readonly name: string
  readonly folder: string
  /** Whether the folder is only a link to one that lies elsewhere. */
  readonly isLink: boolean
  readonly run: RunFile
}

export interface BrokenRun {
  readonly name: string
  readonly folder: string
  readonly problem: string
}

export interface FoundRuns {
  readonly runs: readonly FoundRun[]
  readonly broken: readonly BrokenRun[]
}

/** The runs below a root. Opens only `run.json` of each, and its lock if it claims to be running. */
export async function findRuns(root: string): Promise<FoundRuns> {
  const runs: FoundRun[] = []
  const broken: BrokenRun[] = []
  for (const entry of await entriesOf(root)) {
    const { name } = entry
    if (name.startsWith('.')) continue
    const folder = join(root, name)
    try {
      const isLink = entry.isSymbolicLink()
      // A run may have been moved to another disk, with a link to it left in its place.
      if (!statSync(folder, { throwIfNoEntry: false })?.isDirectory()) continue
      const run = readRunFile(folder)
      if (run) runs.push({ name, folder, isLink, run: { ...run, state: currentState(folder, run) } })
      else if (existsSync(join(folder, runFiles.database))) {
        broken.push({ name, folder, problem: `${runFiles.run} is missing` })
      }
    } catch (error) {
      broken.push({ name, folder, problem: MillraceError.from(error, 'store_failed').rawMessage })
    }
  }
  runs.sort((a, b) => (a.run.createdAt < b.run.createdAt ? 1 : a.run.createdAt > b.run.createdAt ? -1 : 0))
  return { runs, broken }
}

/** The newest run of this configuration that nobody is working on and that is not complete. */
export async function latestUnfinished(root: string, configDigest: string): Promise<FoundRun | undefined> {
  const { runs } = await findRuns(root)
  return runs.find(({ run }) => run.configDigest === configDigest && run.state === 'unfinished')
}

function currentState(folder: string, run: RunFile): RunFile['state'] {
  if (run.state !== 'running') return run.state
  return RunLock.isHeld(folder) ? 'running' : 'unfinished'
}

async function entriesOf(root: string) {
  try {
    return await readdir(root, { withFileTypes: true })
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'ENOENT' || code === 'ENOTDIR') return []
    throw new MillraceError('folder_unwritable', `cannot read ${root}; check its permissions`, { cause: error })
  }
}
