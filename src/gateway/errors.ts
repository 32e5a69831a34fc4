import { MillraceError } from '../errors/index.ts'
import type { SessionEndReason } from '../store/index.ts'
import type { SessionLimits } from './sessions/session-options.ts'

const retryAfterMs = 1000

export function sessionUnknown(id: string): MillraceError {
  const message = `there is no session ${id.slice(0, 64)}; POST /v1/sessions starts one`
  return new MillraceError('session_not_found', message, { data: { status: 404 } })
}

export function sessionEnded(id: string, why: SessionEndReason): MillraceError {
  const how = why === 'expired' ? 'expired, because it was not used for its ttlSeconds, and' : 'has ended and'
  const message = `session ${id} ${how} accepts no more requests; start another one`
  return new MillraceError('session_ended', message, { data: { status: 410, session: id } })
}

/** The error for a session whose record cannot be read: a retry does not help. `cause` is for the log. */
export function sessionDamaged(id: string, cause?: unknown): MillraceError {
  const message = `the record of session ${id} is damaged, so the session accepts no more requests and is not exported alone; GET /v1/sessions/${id} shows the damage. Other sessions are not affected: start another one`
  return new MillraceError('session_damaged', message, { data: { status: 410, session: id }, cause })
}

export function adminKeyRequired(what: string): MillraceError {
  return new MillraceError('usage', `${what} needs an admin key, not the key of a session`, { data: { status: 403 } })
}

export function draining(): MillraceError {
  const message = 'the gateway is stopping and accepts no new requests; try again when it is back'
  return new MillraceError('closed', message, { data: { status: 503, retryAfterMs } })
}

export function stopped(): MillraceError {
  const message = 'the gateway was stopped during this request; try again when it is back'
  return new MillraceError('closed', message, { data: { status: 503, retryAfterMs } })
}

/** The error if the client is gone; `cause` is the backend's failure that its request was waiting out, if any. */
export function clientGone(cause: unknown): MillraceError {
  return new MillraceError('cancelled', 'the client disconnected', { cause })
}

export function tooManyError(what: string, waitMs = retryAfterMs): MillraceError {
  return new MillraceError('overloaded', what, { data: { status: 503, retryAfterMs: waitMs } })
}

export function priceMissing(model: string): MillraceError {
  const message = `model ${model} has no price, so the session's maxCost cannot be applied; give the model a price, or start a session without maxCost`
  return new MillraceError('usage', message, { data: { status: 400, param: 'model' } })
}

export function limitExhausted(limit: keyof SessionLimits | 'maxMessages', value: number): MillraceError {
  return new MillraceError('budget_exhausted', `the session has used up its ${limit} of ${value}; start another one`, {
    data: { status: 429, limit, value },
  })
}

export function limitBusy(limit: keyof SessionLimits, value: number): MillraceError {
  const message = `the session has reached its ${limit} of ${value} running requests; wait for one to end`
  return new MillraceError('overloaded', message, { data: { status: 429, limit, value, retryAfterMs } })
}
