import { backoffMs, type Backoff } from '../kit/index.ts'
import type { ErrorCode } from '../errors/index.ts'

/** The codes a backend may answer with. */
export type ModelErrorCode = Extract<ErrorCode, `model_${string}` | 'context_length'>

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
   * What the failure says about the backend. `overloaded`: several in a row close its gate. `answered`: the backend works,
   * and said no. `unclear`: nothing either way.
   */
  readonly evidence: 'overloaded' | 'answered' | 'unclear'
  /** Whether fewer requests may be sent at once from now on. Only a 429 does that; 5xx never. */
  readonly cutsConcurrency: boolean
  readonly backoff: Backoff
}

/**
 * Longer waits that a server asks for are cut to this: the server may recover earlier, and one request an interval is no
 * load.
 */
export const maxRetryAfterMs = 5 * 60_000

const usual: Backoff = { firstMs: 500, factor: 2, maxMs: 30_000 }
const toldToWait: Backoff = { firstMs: 1000, factor: 2, maxMs: 60_000 }
/** For a reply that was spoiled on its way: the backend is well, so there is little to wait for. */
const brief: Backoff = { firstMs: 200, factor: 2, maxMs: 10_000 }

const final = {
  retried: false,
  counts: 'always',
  evidence: 'answered',
  cutsConcurrency: false,
  backoff: usual,
} as const

/** Every cause and what is done about it. docs/errors.md is written from this. */
export const retryTable: Readonly<Record<ModelErrorCode, RetryRule>> = {
  model_connect: {
    cause: 'no connection (refused, reset, DNS, connect timeout), or it broke before an answer began',
    retried: true,
    counts: 'unless-parked',
    evidence: 'overloaded',
    cutsConcurrency: false,
    backoff: usual,
  },
  model_timeout: {
    cause: '408, 504, 524, or no complete reply within requestTimeoutMs, or silence for idleTimeoutMs in a stream',
    retried: true,
    counts: 'always',
    evidence: 'overloaded',
    cutsConcurrency: false,
    backoff: usual,
  },
  model_conflict: {
    cause: '409',
    retried: true,
    counts: 'always',
    evidence: 'unclear',
    cutsConcurrency: false,
    backoff: usual,
  },
  model_rate_limited: {
    cause: '429 (unless the account has no quota left); Retry-After is honoured',
    retried: true,
    counts: 'unless-parked',
    evidence: 'overloaded',
    cutsConcurrency: true,
    backoff: toldToWait,
  },
  model_server_error: {
    cause: '500 and other 5xx, 424, 499, or whatever a backend of your own threw without a code',
    retried: true,
    counts: 'always',
    evidence: 'unclear',
    cutsConcurrency: false,
    backoff: usual,
  },
  model_overloaded: {
    cause: '502, 503, 520 to 523, 529, 530; Retry-After is honoured',
    retried: true,
    counts: 'unless-parked',
    evidence: 'overloaded',
    cutsConcurrency: false,
    backoff: usual,
  },
  model_truncated: {
    cause: 'the reply ended before the backend said why it ended',
    retried: true,
    counts: 'always',
    evidence: 'unclear',
    cutsConcurrency: false,
    backoff: brief,
  },
  model_malformed: {
    cause: 'the reply is not what the API promises (invalid JSON or UTF-8, wrong shape, too large)',
    retried: true,
    counts: 'always',
    evidence: 'unclear',
    cutsConcurrency: false,
    backoff: brief,
  },
  model_auth: { cause: '401, 403', ...final },
  model_not_found: { cause: '404', ...final },
  model_rejected: { cause: 'other 4xx, no quota left, an untrusted certificate, a proxy that wants a name', ...final },
  context_length: { cause: '400, 413 or 422 that says the conversation is too long', ...final },
}

/** The rule for any code. An error that did not come from a backend is not retried and says nothing about the backend. */
export function retryRule(code: ErrorCode): RetryRule {
  return Object.hasOwn(retryTable, code) ? retryTable[code as ModelErrorCode] : otherRule
}

const otherRule: RetryRule = { cause: 'not caused by a backend', ...final, evidence: 'unclear' }

export interface RetryWait {
  /** Tries that failed so far, this one included. */
  readonly failures: number
  readonly retryAfterMs: number | undefined
  readonly random: () => number
}

/** How long to wait before the next try: what the server asked for, or else the rule's own back-off. */
export function retryDelayMs(rule: RetryRule, { failures, retryAfterMs, random }: RetryWait): number {
  if (retryAfterMs === undefined) return backoffMs(rule.backoff, failures, random)
  // Up to a tenth more, so that requests that were refused together do not return together. And never at once: a server that
  // always says 0 would be asked as fast as it can refuse.
  const asked = Math.min(retryAfterMs, maxRetryAfterMs) * (1 + 0.1 * random())
  return Math.max(asked, backoffMs(brief, failures, random))
}
