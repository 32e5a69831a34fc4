import { existsSync, mkdirSync, readdirSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { MillraceError } from '../../errors/index.ts'
import { makeFolders, type Variables } from '../../kit/index.ts'
import { folderFailure } from './failures.ts'

export const runFiles = {
  /** What the run is and how far it got; small, for people and for `list`. */
  run: 'run.json',
  /** The journal: everything else can be made from it and the blobs. */
  database: 'journal.sqlite',
  lines: 'rollouts.jsonl',
  blobs: 'blobs',
  lock: 'lock',
  lockOwner: 'lock.owner',
} as const

const namePattern = /^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}$/

/** `<root>/<name>`, for a name that is safe as a folder and on a command line. */
export function runFolder(root: string, name: string): string {
  if (!namePattern.test(name)) {
    throw new MillraceError(
      'usage',
      `"${name}" cannot be the name of a run; use up to 100 letters, digits, dots, dashes and underscores, and start with a letter or a digit`,
      { data: { name } },
    )
  }
  return join(root, name)
}

/** Takes a free name, `base` or `base-2` and so on, by making its folder: two callers at once get two names. */
export function reserveRunName(root: string, base: string): string {
  for (let count = 1; ; count += 1) {
    const name = count === 1 ? base : `${base}-${count}`
    const folder = runFolder(root, name)
    try {
      makeFolders(root)
      mkdirSync(folder)
      return name
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw folderFailure(error, folder)
    }
  }
}

/** Makes the folder. A folder that holds anything but a run is refused, because pruning would delete it whole. */
export function createRunFolder(folder: string): void {
  try {
    makeFolders(folder)
    if (existsSync(join(folder, runFiles.run))) return
    // `run.json` is written first, so a database without it is the rest of a run, not the start of one.
    if (existsSync(join(folder, runFiles.database))) {
      throw new MillraceError(
        'store_failed',
        `${folder} holds the records of a run but no ${runFiles.run}; restore that, or choose another name with --run (run.name)`,
        { data: { folder } },
      )
    }
    const ours = new Set<string>(Object.values(runFiles))
    const foreign = readdirSync(folder).find((name) => !ours.has(name) && !name.endsWith('.tmp'))
    if (foreign === undefined) return
    throw new MillraceError(
      'folder_unwritable',
      `${folder} is not a run: it holds "${foreign}"; choose another name with --run (run.name), or another root`,
      { data: { folder } },
    )
  } catch (error) {
    throw folderFailure(error, folder)
  }
}

export function noRun(folder: string): MillraceError {
  return new MillraceError('run_not_found', `there is no run in ${folder}; \`millrace list\` shows all runs`, {
    data: { folder },
  })
}

export function noDatabase(folder: string): MillraceError {
  const message = `the run in ${folder} has no ${runFiles.database}; restore that file, or delete the folder`
  return new MillraceError('store_failed', message, { data: { folder } })
}

export function defaultRunsRoot(env: Variables): string {
  return env['MILLRACE_RUNS'] || 'runs'
}

export function fileSize(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.size ?? 0
}
