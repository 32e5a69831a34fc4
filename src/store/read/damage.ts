import { MillraceError } from '../../errors/index.ts'
import { isCorrupt, sqliteCode, sqliteCodes } from '../run/failures.ts'

/** A message that was written is missing. Without this error, a reader who does not count would take the rest for all. */
export function missingMessage(id: string, seq: number): MillraceError {
  return damaged(`message ${seq} of ${id}`, new Error('it is missing'))
}

export function damagedSession(session: string, cause?: unknown): MillraceError {
  return damaged(`the start record of session ${session}`, cause, { session })
}

/** The rest of the run may be whole. Clients see this, so files are in its cause only. */
export function damaged(what: string, cause: unknown, data: Readonly<Record<string, string>> = {}): MillraceError {
  const message = `${what} cannot be read; if it matters, restore the run from a copy`
  return new MillraceError('store_failed', message, { data, cause })
}

/** Reads or decodes a stored value; an error means damage, unless the value is only out of reach just now. */
export function decoded<Value>(what: string, read: () => Value): Value {
  try {
    return read()
  } catch (error) {
    throw isDamage(error) || isUnavailable(error) ? error : damaged(what, error)
  }
}

/**
 * The system's codes for a file that is gone, or that cannot be read however often one tries: its name leads elsewhere, the disk
 * fails where it lies, the file system has found it damaged (EUCLEAN and EBADMSG, which Node has no names for).
 */
const damagedFile: ReadonlySet<string | undefined> = new Set([
  'ENOENT',
  'ENOTDIR',
  'EISDIR',
  'ELOOP',
  'ENAMETOOLONG',
  'EIO',
  'Unknown system error -117',
  'Unknown system error -74',
])

/** Whether the content is out of reach just now, and may be whole: too many files are open, say, or the run is gone. */
export function isUnavailable(error: unknown): boolean {
  if (error instanceof MillraceError) return error.code === 'run_not_found'
  const sqlite = sqliteCode(error)
  // A correct statement still fails on damaged content: invalid JSON (its error 1), a corrupt page.
  if (sqlite !== 0) return sqlite !== sqliteCodes.error && !isCorrupt(error)
  const { errno, code } = error as NodeJS.ErrnoException
  return errno !== undefined && !damagedFile.has(code)
}

/** Whether the content itself is damaged, rather than out of reach: a reader can go on with the rest. */
export function isDamage(error: unknown): error is MillraceError {
  return error instanceof MillraceError && error.code === 'store_failed'
}

export function unlessDamaged<Value>(read: () => Value): Value | undefined {
  try {
    return read()
  } catch (error) {
    if (isDamage(error)) return undefined
    throw error
  }
}
