import { MillraceError, type ErrorCode } from '../errors/index.ts'

/** Something went wrong with an attempt that nobody had thought of: it costs its rollout, and no other one. */
export interface BrokenAttempt {
  readonly kind: 'broken'
  readonly error: MillraceError
}

/** The place where rollouts run is gone, or nothing can be recorded any more: no other rollout could go on. */
const endsRun: ReadonlySet<ErrorCode> = new Set<ErrorCode>(['worker_lost', 'closed', 'store_failed', 'disk_full'])

/** What an executor threw, as the end of the rollout it was given; throws it again if it is the end of the run. */
export function brokenAttempt(thrown: unknown): BrokenAttempt {
  const error = MillraceError.from(thrown, 'internal')
  if (endsRun.has(error.code)) throw error
  return { kind: 'broken', error }
}
