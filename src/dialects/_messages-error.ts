import type { MillraceError } from '../errors/index.ts'
import { messageOf, retryHeaders, saidText, statusOf } from './_error-facts.ts'
import type { DialectError } from './server-dialect.ts'

/** Anthropic's own status for an overloaded server. */
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

/** How an error looks to a client of Anthropic's API. */
export function messagesError(error: MillraceError): DialectError {
  const usual = statusOf(error)
  const isOverloaded = usual >= 500 && (error.code === 'model_overloaded' || error.code === 'overloaded')
  const status = isOverloaded ? overloadedStatus : usual
  const said = saidText(error, 'saidType')
  // A backend that speaks another API has other names for its errors.
  const type = said !== undefined && typeNames.has(said) ? said : typeOf(status)
  return {
    status,
    headers: retryHeaders(error),
    body: { type: 'error', error: { type, message: wordedMessage(error), ...detailsOf(error) } },
  }
}

/** The code by which clients tell errors of one type apart. */
function detailsOf(error: MillraceError): object {
  const code = saidText(error, 'saidCode')
  return code === undefined ? {} : { details: { error_code: code } }
}

function typeOf(status: number): string {
  return types[status] ?? (status < 500 ? 'invalid_request_error' : 'api_error')
}

/**
 * The message. This API has no code for a conversation that no longer fits: agents look for these words, and then shorten
 * it.
 */
function wordedMessage(error: MillraceError): string {
  const message = messageOf(error)
  if (error.code !== 'context_length' || message.includes('prompt is too long')) return message
  return `prompt is too long: ${message}`
}
