import { MillraceError, type ErrorCode } from '../errors/index.ts'
import { describeThrown } from './describe-thrown.ts'

/** The longest message that is kept in a record: some code puts the whole output of a program into an error. */
const maxMessageChars = 16 * 1024

/**
 * An error for what a user's code threw: `reward "exact" threw TypeError at environment.ts:41: …`. The place comes before the
 * message, which may be long and is cut where there is little room.
 */
export function thrownBy(what: string, thrown: unknown, code: ErrorCode): MillraceError {
  const { kind, place, message } = describeThrown(thrown)
  const threw = kind === undefined ? '' : ` threw ${kind}`
  const at = place === undefined ? '' : ` at ${place}`
  const data = thrown instanceof MillraceError ? thrown.data : {}
  return new MillraceError(code, `${what}${threw}${at}: ${shortened(message)}`, {
    data: place === undefined ? data : { ...data, place },
    cause: thrown,
  })
}

function shortened(message: string): string {
  const more = message.length - maxMessageChars
  return more > 0 ? `${message.slice(0, maxMessageChars)}… (${more} characters more)` : message
}
