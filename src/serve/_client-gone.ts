import { MillraceError } from '../errors/index.ts'

/** Nobody hears it, and it is no fault of ours. */
export function clientGone(): MillraceError {
  return new MillraceError('cancelled', 'the client has gone', { data: { status: 499 } })
}
