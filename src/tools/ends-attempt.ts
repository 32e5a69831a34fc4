import { MillraceError, type ErrorCode } from '../errors/index.ts'

const codes: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  'tool_infra',
  'replay_diverged',
  'store_failed',
  'disk_full',
  'run_gone',
])

/**
 * Whether an error of a tool or a reward ends the attempt: required infrastructure died, a child could not be replayed, or
 * nothing can be recorded any more. Any other error is the tool's own, which the model may see, or the reward's.
 */
export function endsAttempt(thrown: unknown): thrown is MillraceError {
  return thrown instanceof MillraceError && codes.has(thrown.code)
}
