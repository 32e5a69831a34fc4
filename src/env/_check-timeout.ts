import { MillraceError } from '../errors/index.ts'
import { maxTimerMs } from '../kit/index.ts'

/** Refuses what no timer can wait for. `what` is whose time it is. */
export function checkTimeout(what: string, timeoutMs: number): void {
  if (timeoutMs > 0 && timeoutMs <= maxTimerMs) return
  throw new MillraceError(
    'env_invalid',
    `timeoutMs of ${what} must be more than 0 and at most ${maxTimerMs}, about 25 days, not ${timeoutMs}`,
  )
}
