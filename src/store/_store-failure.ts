import { statfsSync } from 'node:fs'
import { MillraceError } from '../errors/index.ts'
import { sqliteCode, sqliteCodes } from './_sqlite-code.ts'
import { isCorrupt } from './damage.ts'

const fullBelowBytes = 256 * 1024

/** Why the store cannot go on, as an error that tells a person what to do. */
export function storeFailure(error: unknown, folder: string): MillraceError {
  if (error instanceof MillraceError) return error
  const data = { folder }
  if (isDiskFull(error, folder)) {
    return new MillraceError(
      'disk_full',
      `no space left for the run in ${folder}; everything reported so far is kept: free some space, then run the same again`,
      { data, cause: error },
    )
  }
  const detail = error instanceof Error ? error.message : String(error)
  if (isCorrupt(error)) {
    return new MillraceError(
      'store_failed',
      `the database of the run in ${folder} is damaged (${detail}); restore it from a copy, or start another run with --run <name> (run.name)`,
      { data, cause: error },
    )
  }
  return new MillraceError(
    'store_failed',
    `the run in ${folder} cannot be written (${detail}); everything reported so far is kept: check the disk, then run the same again`,
    { data, cause: error },
  )
}

export function isDiskFull(error: unknown, folder: string): boolean {
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
