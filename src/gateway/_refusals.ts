import { MillraceError } from '../errors/index.ts'
import type { JournalClient, SessionEndReason } from '../store/index.ts'
import type { SessionLimits } from './sessions/session-options.ts'
import type { SessionTally } from './sessions/session-tally.ts'

/** How long a client should wait before it tries again, if that may help. */
const retryAfterMs = 1000

export function sessionUnknown(id: string): MillraceError {
  return new MillraceError(
    'session_not_found',
    `there is no session ${id.slice(0, 64)}; POST /v1/sessions starts one`,
    {
      data: { status: 404 },
    },
  )
}

export function sessionSealed(id: string, why: SessionEndReason): MillraceError {
  const how = why === 'expired' ? 'expired: nobody used it for as long as its ttlSeconds, so it' : 'has ended and'
  const message = `session ${id} ${how} takes nothing more; start another one`
  return new MillraceError('session_ended', message, { data: { status: 410, session: id } })
}

/**
 * The error for a session whose record cannot be read. The rest of the server is fine, and a retry does not help. `cause` is
 * for the log.
 */
export function sessionDamaged(id: string, cause?: unknown): MillraceError {
  const message = `the record of session ${id} is damaged, so that it takes nothing more and is not exported alone; GET /v1/sessions/${id} says what cannot be read. Other sessions are as they were: start another one`
  return new MillraceError('session_damaged', message, { data: { status: 410, session: id }, cause })
}

export function adminsOnly(what: string): MillraceError {
  return new MillraceError('usage', `${what} needs an admin key, not the key of a session`, { data: { status: 403 } })
}

export function draining(): MillraceError {
  const message = 'the gateway is about to stop and takes no new work; try again when it is back'
  return new MillraceError('closed', message, { data: { status: 503, retryAfterMs } })
}

/** The error for requests that still ran when the gateway could not wait any longer. */
export function stopped(): MillraceError {
  const message = 'the gateway was stopped while this ran; try again when it is back'
  return new MillraceError('closed', message, { data: { status: 503, retryAfterMs } })
}

/** The error if the client is gone; `cause` is the backend's failure that its request was waiting out, if any. */
export function clientGone(cause: unknown): MillraceError {
  return new MillraceError('cancelled', 'the client went away', { cause })
}

/** The error if there is no room for a request now; the client may try again later. */
export function tooMuch(what: string, waitMs = retryAfterMs): MillraceError {
  return new MillraceError('overloaded', what, { data: { status: 503, retryAfterMs: waitMs } })
}

/** Throws if the disk cannot take what would have to be recorded. */
export function requireDisk({ failure, pressure }: Pick<JournalClient, 'failure' | 'pressure'>): void {
  if (failure.aborted) throw failure.reason
  if (pressure >= 1) throw tooMuch('the disk does not keep up; try again in a moment')
}

/**
 * Why a session may send no further request, if so. Tokens and cost are known only afterwards: the last request may exceed
 * them.
 */
export function limitReached(limits: SessionLimits, used: SessionTally, running: number): MillraceError | undefined {
  const { maxRequests, maxTokens, maxCost, maxConcurrent } = limits
  if (maxRequests !== undefined && used.requests + running >= maxRequests) {
    // A running request may yet fail, and then it does not count.
    return used.requests >= maxRequests ? usedUp('maxRequests', maxRequests) : busy('maxRequests', maxRequests)
  }
  if (maxTokens !== undefined && used.tokens >= maxTokens) return usedUp('maxTokens', maxTokens)
  if (maxCost !== undefined && used.cost >= maxCost) return usedUp('maxCost', maxCost)
  if (maxConcurrent !== undefined && running >= maxConcurrent) return busy('maxConcurrent', maxConcurrent)
  return undefined
}

/** The error if a session has a `maxCost` but the model has no price. */
export function unpriced(model: string): MillraceError {
  const message = `model ${model} has no price, so that the session's maxCost means nothing for it; give the model a price, or start a session without maxCost`
  return new MillraceError('usage', message, { data: { status: 400, param: 'model' } })
}

export function tooLong(maxMessages: number): MillraceError {
  return usedUp('maxMessages', maxMessages)
}

function usedUp(limit: keyof SessionLimits | 'maxMessages', value: number): MillraceError {
  return new MillraceError('budget_exhausted', `the session has used up its ${limit} of ${value}; start another one`, {
    data: { status: 429, limit, value },
  })
}

function busy(limit: keyof SessionLimits, value: number): MillraceError {
  const message = `as many requests of the session are running as its ${limit} of ${value} allows; wait for one to end`
  return new MillraceError('overloaded', message, { data: { status: 429, limit, value, retryAfterMs } })
}
