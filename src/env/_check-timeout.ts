import { MillraceError } from '../errors/index.ts'

/** Throws unless the time is a number of more than 0, as for tools; Infinity is allowed. `what` names whose time it is. */
export function checkTimeout(what: string, timeoutMs: number): void {
  if (typeof timeoutMs === 'number' && timeoutMs > 0) return
  throw new MillraceError('env_invalid', `timeoutMs of ${what} must be a number of more than 0, not ${timeoutMs}`)
}
