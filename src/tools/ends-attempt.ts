import { MillraceError, type ErrorCode } from '../errors/index.ts'

const codes: ReadonlySet<ErrorCode> = new Set<ErrorCode>(['tool_infra', 'replay_diverged', 'store_failed', 'disk_full'])

/**
 * Whether what a tool or a reward threw is not its own failure, which a model may see or a score may suffer, but the end
 * of the attempt: required infrastructure died, a child could not be replayed, or nothing can be recorded any more.
 */
export function endsAttempt(thrown: unknown): thrown is MillraceError {
  return thrown instanceof MillraceError && codes.has(thrown.code)
}
