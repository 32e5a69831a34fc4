import { MillraceError, type ErrorCode } from '../errors/index.ts'

/** An attempt failed in a way nobody foresaw: that ends its own rollout, and no other one. */
export interface BrokenAttempt {
  readonly kind: 'broken'
  readonly error: MillraceError
}

/** The place where rollouts run is gone, or nothing can be recorded any more: no other rollout could go on. */
const endsRun: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  'worker_lost',
  'closed',
  'store_failed',
  'disk_full',
  'run_gone',
])

/** The end of a rollout whose executor threw; throws the error again if it ends the whole run. */
export function brokenAttempt(thrown: unknown): BrokenAttempt {
  const error = MillraceError.from(thrown, 'internal')
  if (endsRun.has(error.code)) throw error
  return { kind: 'broken', error }
}
