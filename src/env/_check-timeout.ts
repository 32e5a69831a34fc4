import { MillraceError } from '../errors/index.ts'

/** As for a tool's: any number of more than 0, Infinity too. `what` is whose time it is. */
export function checkTimeout(what: string, timeoutMs: number): void {
  if (typeof timeoutMs === 'number' && timeoutMs > 0) return
  throw new MillraceError('env_invalid', `timeoutMs of ${what} must be a number of more than 0, not ${timeoutMs}`)
}
