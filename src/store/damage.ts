import { MillraceError } from '../errors/index.ts'
import { sqliteCode, sqliteCodes } from './_sqlite-code.ts'

/** A message is not as it was written. The rest of the run may be whole. Clients see this, so files are in its cause only. */
export function damagedMessages(id: string, seq: number | undefined, cause: unknown): MillraceError {
  return damaged(`${seq === undefined ? 'a message' : `message ${seq}`} of ${id}`, cause)
}

/** A message that was written is missing. Without this error, a reader who does not count would take the rest for all. */
export function missingMessage(id: string, seq: number): MillraceError {
  return damagedMessages(id, seq, new Error('it is missing'))
}

/** The record of a rollout is not as it was written. Its messages may be whole. */
export function damagedRecord(rollout: string, cause: unknown): MillraceError {
  return damaged(`what rollout ${rollout} came to`, cause)
}

/** An event of a rollout, or of the run, is not as it was written. */
export function damagedEvent(rollout: string | null, name: string, cause: unknown): MillraceError {
  return damaged(`an event ${name} of ${rollout ?? 'the run'}`, cause)
}

/** The row of a task is not as it was written. The task's rollouts may be whole. */
export function damagedTaskRow(task: number, cause: unknown): MillraceError {
  return damaged(`the row of task ${task}`, cause)
}

/** A session's metadata or limits are not as they were written. Its messages may be whole. */
export function damagedSession(session: string, cause?: unknown): MillraceError {
  return damaged(`what was said about session ${session} at its start`, cause, { session })
}

function damaged(what: string, cause: unknown, data: Readonly<Record<string, string>> = {}): MillraceError {
  const message = `${what} cannot be read; if it matters, restore the run from a copy`
  return new MillraceError('store_failed', message, { data, cause })
}

/** Decodes a stored value; an error means damage, unless the value is only out of reach just now. */
export function decoded<Value>(decode: () => Value, asDamage: (cause: unknown) => MillraceError): Value {
  try {
    return decode()
  } catch (error) {
    throw isDamage(error) || isOutOfReach(error) ? error : asDamage(error)
  }
}

/** Reads rows of messages. A correct statement still fails on damaged content: invalid JSON, a corrupt page. */
export function messageRows<Rows>(id: string, read: () => Rows): Rows {
  try {
    return read()
  } catch (error) {
    const isDamaged = isCorrupt(error) || sqliteCode(error) === sqliteCodes.error
    throw isDamaged ? damagedMessages(id, undefined, error) : error
  }
}

/** Reads the rewards of a session. They hold no JSON, so only a corrupt page counts as damage. */
export function rewardRows<Rows>(session: string, read: () => Rows): Rows {
  try {
    return read()
  } catch (error) {
    throw isCorrupt(error) ? damaged(`what session ${session} was rewarded with`, error) : error
  }
}

/** Whether SQLite met a corrupt page, or a file that is no database at all. */
export function isCorrupt(error: unknown): boolean {
  const code = sqliteCode(error)
  return code === sqliteCodes.corrupt || code === sqliteCodes.notADatabase
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
export function isOutOfReach(error: unknown): boolean {
  if (error instanceof MillraceError) return error.code === 'run_not_found'
  const { errno, code } = error as NodeJS.ErrnoException
  return errno !== undefined && !damagedFile.has(code)
}

/** Whether the content itself is damaged, rather than out of reach: a reader can go on with the rest. */
export function isDamage(error: unknown): error is MillraceError {
  return error instanceof MillraceError && error.code === 'store_failed'
}

/** The value that `read` returns; undefined if it is damaged. */
export function unlessDamaged<Value>(read: () => Value): Value | undefined {
  try {
    return read()
  } catch (error) {
    if (isDamage(error)) return undefined
    throw error
  }
}
