import { MillraceError } from '../errors/index.ts'
import { sqliteCode, sqliteCodes } from './_sqlite-code.ts'

/** A message that is not as it was written. The rest of the run may be whole all the same. Clients see it, so files are in its cause only. */
export function damagedMessages(id: string, seq: number | undefined, cause: unknown): MillraceError {
  return damaged(`${seq === undefined ? 'a message' : `message ${seq}`} of ${id}`, cause)
}

/** One that was written and is not there. What is left looks whole to whoever does not count. */
export function missingMessage(id: string, seq: number): MillraceError {
  return damagedMessages(id, seq, new Error('it is missing'))
}

/** What a rollout came to is not as it was written. What was said in it may be whole all the same. */
export function damagedRecord(rollout: string, cause: unknown): MillraceError {
  return damaged(`what rollout ${rollout} came to`, cause)
}

/** What happened to a rollout, or to the run, is not as it was written. */
export function damagedEvent(rollout: string | null, name: string, cause: unknown): MillraceError {
  return damaged(`an event ${name} of ${rollout ?? 'the run'}`, cause)
}

/** What was said in it may be whole all the same, but not what it is about, or what it may use up. */
export function damagedSession(session: string, cause?: unknown): MillraceError {
  return damaged(`what was said about session ${session} at its start`, cause, { session })
}

function damaged(what: string, cause: unknown, data: Readonly<Record<string, string>> = {}): MillraceError {
  const message = `${what} cannot be read; if it matters, restore the run from a copy`
  return new MillraceError('store_failed', message, { data, cause })
}

/** Makes of what was stored what it stands for. What cannot be got just now is not called damaged. */
export function decoded<Value>(decode: () => Value, asDamage: (cause: unknown) => MillraceError): Value {
  try {
    return decode()
  } catch (error) {
    throw isDamage(error) || isOutOfReach(error) ? error : asDamage(error)
  }
}

/** Reads rows of messages. A right statement fails for what it finds there: JSON that is none, a page that is none. */
export function messageRows<Rows>(id: string, read: () => Rows): Rows {
  try {
    return read()
  } catch (error) {
    const isDamaged = isCorrupt(error) || sqliteCode(error) === sqliteCodes.error
    throw isDamaged ? damagedMessages(id, undefined, error) : error
  }
}

/** Reads the rewards of a session, in which there is no JSON: only a page can be none. */
export function rewardRows<Rows>(session: string, read: () => Rows): Rows {
  try {
    return read()
  } catch (error) {
    throw isCorrupt(error) ? damaged(`what session ${session} was rewarded with`, error) : error
  }
}

/** Whether a page of the database is none, or its first not even that of one. */
export function isCorrupt(error: unknown): boolean {
  const code = sqliteCode(error)
  return code === sqliteCodes.corrupt || code === sqliteCodes.notADatabase
}

/**
 * What the system says of a file that is gone, or that nobody can read however often they ask: its name leads elsewhere, the
 * disk fails where it lies, the file system has found it damaged (EUCLEAN and EBADMSG, which Node has no names for).
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

/** Whether what is there could not be got just now: too many files are open, say, or all of the run is gone. It may be whole. */
export function isOutOfReach(error: unknown): boolean {
  if (error instanceof MillraceError) return error.code === 'run_not_found'
  const { errno, code } = error as NodeJS.ErrnoException
  return errno !== undefined && !damagedFile.has(code)
}

/** Whether what was read is damaged, and not the way to it: who reads much can go on with the rest. */
export function isDamage(error: unknown): error is MillraceError {
  return error instanceof MillraceError && error.code === 'store_failed'
}

/** What is read; undefined if it is damaged. */
export function unlessDamaged<Value>(read: () => Value): Value | undefined {
  try {
    return read()
  } catch (error) {
    if (isDamage(error)) return undefined
    throw error
  }
}
