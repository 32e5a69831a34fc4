import type { ErrorCode, MillraceError } from '../errors/index.ts'
import { messageOf, retryHeaders, saidText, shownCode, statusOf } from './_error-facts.ts'
import type { DialectError } from './server-dialect.ts'

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

/** How an error looks to a client of either of OpenAI's APIs. */
export function openAiError(error: MillraceError): DialectError {
  return { status: statusOf(error), headers: retryHeaders(error), body: { error: openAiErrorFields(error) } }
}

export function openAiErrorFields(error: MillraceError): Record<string, unknown> {
  const code = shownCode(error)
  return {
    message: messageOf(error),
    type: saidText(error, 'saidType') ?? typeOf(statusOf(error)),
    param: error.data['param'] ?? null,
    code: saidText(error, 'saidCode') ?? codes[code] ?? code,
  }
}

function typeOf(status: number): string {
  if (status === 401) return 'authentication_error'
  if (status === 403) return 'permission_error'
  if (status === 429) return 'rate_limit_error'
  return status < 500 ? 'invalid_request_error' : 'server_error'
}
