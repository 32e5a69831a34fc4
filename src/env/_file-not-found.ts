import { readdir } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { MillraceError } from '../errors/index.ts'
import { nearestNames } from '../kit/index.ts'

/** Whether the file at a path is of the kind that was asked for. */
type CouldBeMeant = (path: string) => boolean

/** The error for a file that could not be opened: its full path, the reason, and a similar name that was perhaps meant. */
export async function fileNotFound(path: string, cause: unknown, couldBeMeant: CouldBeMeant): Promise<MillraceError> {
  return new MillraceError('file_not_found', await explain(path, cause, couldBeMeant), { data: { path }, cause })
}

async function explain(path: string, cause: unknown, couldBeMeant: CouldBeMeant): Promise<string> {
  const code = cause instanceof Error && 'code' in cause ? cause.code : undefined
  if (code === 'EACCES' || code === 'EPERM') return `${path} may not be read: check its permissions`
  if (code !== 'ENOENT' && code !== 'ENOTDIR') {
    return `${path} cannot be opened: ${MillraceError.from(cause, 'file_not_found').rawMessage}`
  }
  const folder = dirname(path)
  let names: string[]
  try {
    names = await readdir(folder)
  } catch {
    return `there is no file ${path}, nor a folder ${folder}; relative paths start from ${process.cwd()}`
  }
  const near = nearestNames(basename(path), names, names.length).find((name) => couldBeMeant(join(folder, name)))
  const hint = near ? `did you mean ${near}?` : `the folder ${folder} is there, so check the name`
  return `there is no file ${path}; ${hint}`
}
