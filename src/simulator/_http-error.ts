import { MillraceError, type ErrorCode } from '../errors/index.ts'

/** How an error looks to a client of OpenAI's API. */
const shapes: Partial<Record<ErrorCode, readonly [status: number, type: string, code: string]>> = {
  model_rate_limited: [429, 'rate_limit_error', 'rate_limit_exceeded'],
  model_server_error: [500, 'server_error', 'internal_error'],
  model_overloaded: [503, 'server_error', 'overloaded'],
  context_length: [400, 'invalid_request_error', 'context_length_exceeded'],
  model_rejected: [400, 'invalid_request_error', 'invalid_value'],
  config_invalid: [400, 'invalid_request_error', 'invalid_value'],
  model_auth: [401, 'authentication_error', 'invalid_api_key'],
  model_not_found: [404, 'invalid_request_error', 'model_not_found'],
}

export interface HttpError {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
}

export function httpError(thrown: unknown): HttpError {
  const error = MillraceError.from(thrown, 'internal')
  const [usual, type, code] = shapes[error.code] ?? [500, 'server_error', 'internal_error']
  const status = typeof error.data['status'] === 'number' ? error.data['status'] : usual
  const param = error.data['param'] ?? null
  const waitMs = error.data['retryAfterMs']
  return {
    status,
    // `retry-after` knows whole seconds only; clients that know `retry-after-ms` need not wait that long.
    headers:
      typeof waitMs === 'number'
        ? { 'retry-after': String(Math.ceil(waitMs / 1000)), 'retry-after-ms': String(waitMs) }
        : {},
    body: JSON.stringify({ error: { message: error.rawMessage, type, param, code } }),
  }
}
