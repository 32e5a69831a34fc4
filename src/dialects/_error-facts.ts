import type { ErrorCode, MillraceError } from '../errors/index.ts'

/** What is not here went wrong on our side: 500. Clients retry 408, 409, 429 and whatever is above 499. */
const statuses: Readonly<Partial<Record<ErrorCode, number>>> = {
  usage: 400,
  config_invalid: 400,
  model_rejected: 400,
  context_length: 400,
  model_auth: 401,
  // Nothing that a retry could mend, so it is not the 429 of a rate limit.
  budget_exhausted: 403,
  model_not_found: 404,
  session_not_found: 404,
  model_conflict: 409,
  session_ended: 410,
  model_rate_limited: 429,
  model_connect: 502,
  model_truncated: 502,
  model_malformed: 502,
  model_overloaded: 503,
  overloaded: 503,
  closed: 503,
  cancelled: 503,
  store_failed: 503,
  disk_full: 503,
  model_timeout: 504,
}

/** The status that the backend, or whoever refused, gave; else the usual one of the code. */
export function statusOf(error: MillraceError): number {
  const { status } = error.data
  return typeof status === 'number' && status >= 400 && status < 600 ? status : (statuses[error.code] ?? 500)
}

/** A backend's own words where it had some. */
export function messageOf(error: MillraceError): string {
  // A fault of ours is for the log.
  if (error.code === 'internal') return 'something went wrong in the server'
  return saidText(error, 'said') ?? error.rawMessage
}

export function saidText(error: MillraceError, key: 'said' | 'saidType' | 'saidCode'): string | undefined {
  const value = error.data[key]
  return typeof value === 'string' && value !== '' ? value : undefined
}

/** `retry-after` knows whole seconds only; clients that know `retry-after-ms` need not wait that long. */
export function retryHeaders(error: MillraceError): Record<string, string> {
  const waitMs = error.data['retryAfterMs']
  if (typeof waitMs !== 'number') return {}
  return { 'retry-after': String(Math.ceil(waitMs / 1000)), 'retry-after-ms': String(waitMs) }
}
