import { MillraceError } from '../errors/index.ts'

const sqliteError = 1
const sqliteCorrupt = 11

/** A message that is not as it was written. The rest of the run may be whole all the same. Clients see it, so files are in its cause only. */
export function damagedMessages(id: string, seq: number | undefined, cause: unknown): MillraceError {
  const which = seq === undefined ? 'a message' : `message ${seq}`
  const message = `${which} of ${id} cannot be read; if it matters, restore the run from a copy`
  return new MillraceError('store_failed', message, { cause })
}

/** Reads rows of messages. A right statement fails for what it finds there: JSON that is none, a page that is none. */
export function messageRows<Rows>(id: string, read: () => Rows): Rows {
  try {
    return read()
  } catch (error) {
    const { errcode } = error as { errcode?: number }
    const primary = (errcode ?? 0) & 0xff
    if (primary !== sqliteError && primary !== sqliteCorrupt) throw error
    throw damagedMessages(id, undefined, error)
  }
}

/** Whether what was read is damaged, and not the way to it: who reads much can go on with the rest. */
export function isDamage(error: unknown): error is MillraceError {
  return error instanceof MillraceError && error.code === 'store_failed'
}
