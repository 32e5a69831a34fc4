import { type ErrorCode, MillraceError } from '../../errors/index.ts'
import { type Backoff, backoffMs, thrownBy } from '../../kit/index.ts'

/** The codes a backend may answer with. */
type ModelErrorCode = Extract<ErrorCode, `model_${string}` | 'context_length'>

/** What is done about one cause of failure. */
export interface RetryRule {
  /** The cause in words, for the documentation. */
  readonly cause: string
  readonly retried: boolean
  /**
   * Whether the try is taken from `maxTries`. `unless-parked`: not when the backend was found overloaded, because then no
   * request is at fault. A timeout always counts: it may well be the request that is too slow.
   */
  readonly counts: 'always' | 'unless-parked'
  /**
   * `overloaded`: several in a row open the backend's breaker. `answered`: it works, and said no. `unclear`: nothing either
   * way.
   */
  readonly evidence: 'overloaded' | 'answered' | 'unclear'
  /** Whether fewer requests may be sent at once from now on. Only a 429 does that; 5xx never. */
  readonly cutsConcurrency: boolean
  readonly backoff: Backoff
}

/** Longer waits that a server asks for are cut to this: it may recover earlier, and one request an interval is no load. */
export const maxRetryAfterMs = 5 * 60_000

const usualBackoff: Backoff = { firstMs: 500, factor: 2, maxMs: 30_000 }
const overloadBackoff: Backoff = { firstMs: 1000, factor: 2, maxMs: 60_000 }
/** For a reply that was spoiled on its way: the backend is well, so there is little to wait for. */
const briefBackoff: Backoff = { firstMs: 200, factor: 2, maxMs: 10_000 }

const tryAgain = {
  retried: true,
  counts: 'always',
  evidence: 'unclear',
  cutsConcurrency: false,
  backoff: usualBackoff,
} as const
const final = { ...tryAgain, retried: false, evidence: 'answered' } as const

/** Every cause and what is done about it. docs/errors.md is written from this. */
export const retryTable: Readonly<Record<ModelErrorCode, RetryRule>> = {
  model_connect: {
    ...tryAgain,
    cause: 'no connection (refused, reset, DNS, connect timeout), or it broke before an answer began',
    counts: 'unless-parked',
    evidence: 'overloaded',
  },
  model_timeout: {
    ...tryAgain,
    cause: '408, 504, 524, or no complete reply within requestTimeoutMs, or no data for idleTimeoutMs in a stream',
    evidence: 'overloaded',
  },
  model_conflict: { ...tryAgain, cause: '409' },
  model_rate_limited: {
    ...tryAgain,
    cause: '429 (unless the account has no quota left); Retry-After is honoured',
    counts: 'unless-parked',
    evidence: 'overloaded',
    cutsConcurrency: true,
    backoff: overloadBackoff,
  },
  model_server_error: {
    ...tryAgain,
    cause: '500 and other 5xx, 424, 499, or an error without a code from a custom backend',
  },
  model_overloaded: {
    ...tryAgain,
    cause: '502, 503, 520 to 523, 529, 530; Retry-After is honoured',
    counts: 'unless-parked',
    evidence: 'overloaded',
  },
  model_truncated: {
    ...tryAgain,
    cause: 'the reply ended before the backend said why it ended',
    backoff: briefBackoff,
  },
  model_malformed: {
    ...tryAgain,
    cause: 'the reply is not what the API promises (invalid JSON or UTF-8, wrong shape, too large)',
    backoff: briefBackoff,
  },
  model_auth: { ...final, cause: '401, 403' },
  model_not_found: { ...final, cause: '404' },
  model_rejected: {
    ...final,
    cause: 'other 4xx, no quota left, an untrusted certificate, a proxy that requires authentication',
  },
  context_length: { ...final, cause: '400, 413 or 422 that says the conversation is too long' },
}

/** The rule for any code. An error that did not come from a backend is not retried and says nothing about the backend. */
export function retryRule(code: ErrorCode): RetryRule {
  return Object.hasOwn(retryTable, code) ? retryTable[code as ModelErrorCode] : otherRule
}

const otherRule: RetryRule = { ...final, cause: 'not caused by a backend', evidence: 'unclear' }

/** How long to wait after the n-th failed try: what the server asked for, or else the rule's own back-off. */
export function retryDelayMs(
  rule: RetryRule,
  { failures, retryAfterMs, random }: { failures: number; retryAfterMs: number | undefined; random: () => number },
): number {
  if (retryAfterMs === undefined) return backoffMs(rule.backoff, failures, random)
  // Up to a tenth more, so that requests that were refused together do not return together. And never at once: a server that
  // always says 0 would be asked as fast as it can refuse.
  const asked = Math.min(retryAfterMs, maxRetryAfterMs) * (1 + 0.1 * random())
  return Math.max(asked, backoffMs(briefBackoff, failures, random))
}

/** The failure of a try as a coded error. A user's own backend may throw anything, such as the errors of `fetch`. */
export function tryFailure(thrown: unknown, backend: string): MillraceError {
  return thrown instanceof MillraceError ? thrown : thrownBy(`the backend ${backend}`, thrown, 'model_server_error')
}
