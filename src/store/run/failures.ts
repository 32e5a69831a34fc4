import { statfsSync } from 'node:fs'
import { MillraceError } from '../../errors/index.ts'

const fullBelowBytes = 256 * 1024

/** Why the store cannot go on, as an error that tells a person what to do. */
export function storeFailure(error: unknown, folder: string): MillraceError {
  if (error instanceof MillraceError) return error
  const detail = error instanceof Error ? error.message : String(error)
  const options = { data: { folder }, cause: error }
  if (isDiskFull(error, folder)) {
    const message = `no space left for the run in ${folder}; everything reported so far is kept: free some space, then run the same again`
    return new MillraceError('disk_full', message, options)
  }
  const message = isCorrupt(error)
    ? `the database of the run in ${folder} is damaged (${detail}); restore it from a copy, recover what can be read with \`sqlite3 journal.sqlite ".recover"\`, or start another run with --run <name> (run.name)`
    : `the run in ${folder} cannot be written (${detail}); everything reported so far is kept: check the disk, then run the same again`
  return new MillraceError('store_failed', message, options)
}

export function folderFailure(error: unknown, folder: string): MillraceError {
  if (error instanceof MillraceError) return error
  if (isDiskFull(error, folder)) return storeFailure(error, folder)
  const detail = error instanceof Error ? error.message : String(error)
  return new MillraceError(
    'folder_unwritable',
    `cannot write to ${folder} (${detail}); check the path and its permissions, or choose another folder with --runs (run.root)`,
    { data: { folder }, cause: error },
  )
}

function isDiskFull(error: unknown, folder: string): boolean {
  if (!(error instanceof Error)) return false
  const { code } = error as NodeJS.ErrnoException
  if (code === 'ENOSPC' || code === 'EDQUOT' || sqliteCode(error) === sqliteCodes.full) return true
  // SQLite reports a full disk during fsync, or while it extends its shared memory, as an input/output error.
  return sqliteCode(error) === sqliteCodes.ioError && hasNoSpace(folder)
}

function hasNoSpace(folder: string): boolean {
  try {
    const { bavail, bsize } = statfsSync(folder)
    return bavail * bsize < fullBelowBytes
  } catch {
    return false
  }
}

/** SQLite's codes for the failures that are handled differently. */
export const sqliteCodes = {
  error: 1,
  busy: 5,
  readOnly: 8,
  ioError: 10,
  corrupt: 11,
  full: 13,
  cannotOpen: 14,
  notADatabase: 26,
} as const

/** The primary code, in the low byte; the other bytes say where it happened. 0 if the error is not SQLite's. */
export function sqliteCode(error: unknown): number {
  const { errcode } = error as { errcode?: unknown }
  return typeof errcode === 'number' ? errcode & 0xff : 0
}

/** Whether SQLite met a corrupt page, or a file that is no database at all. */
export function isCorrupt(error: unknown): boolean {
  const code = sqliteCode(error)
  return code === sqliteCodes.corrupt || code === sqliteCodes.notADatabase
}
