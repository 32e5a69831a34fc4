import { type ErrorCode, type MillraceError, ownFaults } from '../../errors/index.ts'
import { retryAfterOf } from '../../http/index.ts'
import type { DialectError } from '../server-side.ts'

/** The HTTP status of each code, else 500: a fault on our side. Clients retry 408, 409, 429 and all above 499. */
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
const publicMessages: Readonly<Partial<Record<ErrorCode, string>>> = {
  model_rejected: 'the model rejected this request without a reason',
  context_length: 'the conversation is longer than the context of the model',
  model_not_found: 'the backend does not know this model; tell the operator of this server',
  model_rate_limited: 'the model is rate-limited; try again later',
  model_connect: 'the model cannot be reached; try again later',
  model_timeout: 'the model did not reply in time; try again, or request a shorter reply',
  model_truncated: 'the reply of the model was cut off; try again',
  model_malformed: 'the reply of the model cannot be read; tell the operator of this server',
  model_overloaded: 'the model is overloaded; try again later',
  model_server_error: 'the model failed; try again later',
}

const misconfigured =
  'the model cannot be used with the configuration of this server. Your own key is valid; tell the operator of this server'

function shownCode(error: MillraceError): ErrorCode {
  return isMisconfigured(error) ? 'model_connect' : error.code
}

/** The status that the backend or our own refusal gave, else the usual one of the code. */
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
  const ownMessage = isFromBackend(error) ? (publicMessages[error.code] ?? 'the model did not reply') : error.rawMessage
  return reportedText(error, 'said') ?? ownMessage
}

/** The backend's own words, if they may be passed on. */
function reportedText(error: MillraceError, key: 'said' | 'saidType' | 'saidCode'): string | undefined {
  if (isFromBackend(error) && (isMisconfigured(error) || !repeated.has(error.code))) return undefined
  const value = error.data[key]
  return typeof value === 'string' && value !== '' ? value : undefined
}

/** Whether the error came from a backend: all such errors name it. */
function isFromBackend(error: MillraceError): boolean {
  return typeof error.data['backend'] === 'string'
}

/** Whether the backend refuses our key, credit, TLS or address, which a client cannot mend. */
function isMisconfigured(error: MillraceError): boolean {
  if (!isFromBackend(error)) return false
  const { status, cause } = error.data
  if (error.code === 'model_auth' || status === 402) return true
  return (typeof status === 'number' && status < 400) || (error.code === 'model_rejected' && cause !== undefined)
}

/** The headers that ask a client to wait. `retry-after` has whole seconds only; `retry-after-ms` is exact. */
export function retryHeaders(error: MillraceError): Record<string, string> {
  const waitMs = retryAfterOf(error)
  if (waitMs === undefined) return {}
  return { 'retry-after': String(Math.ceil(waitMs / 1000)), 'retry-after-ms': String(waitMs) }
}

/** OpenAI's names for our codes; codes without one keep our name. */
const codes: Readonly<Partial<Record<ErrorCode, string>>> = {
  config_invalid: 'invalid_value',
  model_rejected: 'invalid_value',
  context_length: 'context_length_exceeded',
  model_auth: 'invalid_api_key',
  model_not_found: 'model_not_found',
  model_rate_limited: 'rate_limit_exceeded',
  budget_exhausted: 'insufficient_quota',
  model_overloaded: 'overloaded',
  model_server_error: 'internal_error',
  internal: 'internal_error',
}

export function openAiError(error: MillraceError): DialectError {
  return { status: statusOf(error), headers: retryHeaders(error), body: { error: openAiErrorFields(error) } }
}

export function openAiErrorFields(error: MillraceError): Record<string, unknown> {
  const code = shownCode(error)
  return {
    message: messageOf(error),
    type: reportedText(error, 'saidType') ?? openAiType(statusOf(error)),
    param: error.data['param'] ?? null,
    code: reportedText(error, 'saidCode') ?? codes[code] ?? code,
  }
}

function openAiType(status: number): string {
  if (status === 401) return 'authentication_error'
  if (status === 403) return 'permission_error'
  if (status === 429) return 'rate_limit_error'
  return status < 500 ? 'invalid_request_error' : 'server_error'
}

const overloadedStatus = 529

const types: Readonly<Record<number, string>> = {
  400: 'invalid_request_error',
  401: 'authentication_error',
  402: 'billing_error',
  403: 'permission_error',
  404: 'not_found_error',
  413: 'request_too_large',
  429: 'rate_limit_error',
  504: 'timeout_error',
  [overloadedStatus]: 'overloaded_error',
}

const typeNames: ReadonlySet<string> = new Set([...Object.values(types), 'api_error'])

export function messagesError(error: MillraceError): DialectError {
  const usual = statusOf(error)
  const isOverloaded = usual >= 500 && (error.code === 'model_overloaded' || error.code === 'overloaded')
  const status = isOverloaded ? overloadedStatus : usual
  const reportedType = reportedText(error, 'saidType')
  const code = reportedText(error, 'saidCode')
  const usualType = types[status] ?? (status < 500 ? 'invalid_request_error' : 'api_error')
  // A backend that speaks another API has other names for its errors.
  const type = reportedType !== undefined && typeNames.has(reportedType) ? reportedType : usualType
  return {
    status,
    headers: retryHeaders(error),
    body: {
      type: 'error',
      error: { type, message: wordedMessage(error), ...(code && { details: { error_code: code } }) },
    },
  }
}

/** This API has no code for a conversation that no longer fits: agents look for these words, and then shorten it. */
function wordedMessage(error: MillraceError): string {
  const message = messageOf(error)
  if (error.code !== 'context_length' || message.includes('prompt is too long')) return message
  return `prompt is too long: ${message}`
}
