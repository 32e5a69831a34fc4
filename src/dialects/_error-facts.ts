import { ownFaults, type ErrorCode, type MillraceError } from '../errors/index.ts'
import { askedDelayMs } from '../inference/index.ts'

/**
 * The HTTP status of each code. Codes that are missing are faults on our side: 500. Clients retry 408, 409, 429 and all
 * above 499.
 */
const statuses: Readonly<Partial<Record<ErrorCode, number>>> = {
  usage: 400,
  config_invalid: 400,
  model_rejected: 400,
  context_length: 400,
  model_auth: 401,
  // A retry cannot help, so this is not the 429 of a rate limit.
  budget_exhausted: 403,
  model_not_found: 404,
  session_not_found: 404,
  model_conflict: 409,
  session_ended: 410,
  session_damaged: 410,
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
  run_gone: 503,
  model_timeout: 504,
}

/** Codes whose errors are passed on in the backend's own words: they concern the request, which only the client can change. */
const repeated: ReadonlySet<ErrorCode> = new Set([
  'model_rejected',
  'context_length',
  'model_not_found',
  'model_conflict',
  'model_rate_limited',
])

/** Our own words for other errors of backends: clients must not see their urls, hosts and keys. */
const words: Readonly<Partial<Record<ErrorCode, string>>> = {
  model_rejected: 'the model does not accept this request, and does not say why',
  context_length: 'the conversation no longer fits into the context of the model',
  model_not_found: 'the model is not known where it should be served; tell whoever runs this server',
  model_rate_limited: 'the model takes no more requests for now; try again later',
  model_connect: 'the model cannot be reached; try again later',
  model_timeout: 'the model did not reply in time; try again, or ask for less',
  model_truncated: 'the reply of the model was cut off; try again',
  model_malformed: 'the reply of the model cannot be read; tell whoever runs this server',
  model_overloaded: 'the model is overloaded; try again later',
  model_server_error: 'the model failed; try again later',
}

const misconfigured =
  'the model cannot be used as this server is set up. Your own key is in order; tell whoever runs this server'

/** The code that a client is shown. */
export function shownCode(error: MillraceError): ErrorCode {
  return isMisconfigured(error) ? 'model_connect' : error.code
}

/**
 * The status that the backend, or our own refusal, gave; else the usual one of the code. A 4xx tells clients that the fault
 * is theirs.
 */
export function statusOf(error: MillraceError): number {
  const code = shownCode(error)
  const { status } = error.data
  const least = code === 'model_server_error' ? 500 : 400
  const isGiven = code === error.code && typeof status === 'number' && status >= least && status < 600
  return isGiven ? status : (statuses[code] ?? 500)
}

export function messageOf(error: MillraceError): string {
  // The message of our own fault is only for the log.
  const ownFault = ownFaults[error.code]
  if (ownFault !== undefined) return ownFault
  if (isMisconfigured(error)) return misconfigured
  return (
    saidText(error, 'said') ??
    (isFromBackend(error) ? (words[error.code] ?? 'the model did not reply') : error.rawMessage)
  )
}

/** The backend's own words, if they may be passed on. */
export function saidText(error: MillraceError, key: 'said' | 'saidType' | 'saidCode'): string | undefined {
  if (isFromBackend(error) && (isMisconfigured(error) || !repeated.has(error.code))) return undefined
  const value = error.data[key]
  return typeof value === 'string' && value !== '' ? value : undefined
}

/** Whether the error came from a backend: all such errors name it. */
function isFromBackend(error: MillraceError): boolean {
  return typeof error.data['backend'] === 'string'
}

/**
 * Whether the backend refuses our key, credit, TLS or address: a client can neither mend that nor should take it for its own
 * fault.
 */
function isMisconfigured(error: MillraceError): boolean {
  if (!isFromBackend(error)) return false
  const { status, cause } = error.data
  const isElsewhere = typeof status === 'number' && status < 400
  return (
    error.code === 'model_auth' ||
    status === 402 ||
    isElsewhere ||
    (error.code === 'model_rejected' && cause !== undefined)
  )
}

/** The headers that ask a client to wait. `retry-after` has whole seconds only; `retry-after-ms` is exact. */
export function retryHeaders(error: MillraceError): Record<string, string> {
  const waitMs = askedDelayMs(error)
  if (waitMs === undefined) return {}
  return { 'retry-after': String(Math.ceil(waitMs / 1000)), 'retry-after-ms': String(waitMs) }
}
