import { chatServer, type DialectError } from '../../../apis/index.ts'
import { MillraceError } from '../../../errors/index.ts'

/** Whether errors have honest statuses, or those that AReaL's own servers give. */
export interface StatusRule {
  readonly strict: boolean
}

interface RefusalOptions {
  /** What AReaL answers. */
  readonly status: number
  /** With honest statuses; the same if not given. */
  readonly strictStatus?: number
  /** The field of the text: `error` for what AReaL's gateway refuses itself, `detail` for the rest. */
  readonly field?: 'detail' | 'error'
}

/** A refusal in AReaL's words. */
export function refusal(
  message: string,
  { status, strictStatus = status, field = 'detail' }: RefusalOptions,
): MillraceError {
  return new MillraceError('usage', message, { data: { status, strictStatus, field } })
}

export function noKey(): MillraceError {
  return refusal("Missing or malformed Authorization header. Expected 'Bearer <token>'.", { status: 401 })
}

export function unknownKey(): MillraceError {
  return refusal(unknownKeyText, { status: 401, field: 'error' })
}

export function notAdmin(): MillraceError {
  return refusal('Admin API key required.', { status: 403 })
}

const unknownKeyText = 'Unknown API key'

/** Whatever was thrown, as AReaL answers it. */
export function arealError(thrown: unknown, rule: StatusRule): DialectError {
  const error = MillraceError.from(thrown, 'internal')
  const { status, strictStatus, field, detail } = error.data
  if (typeof field === 'string' && typeof status === 'number' && typeof strictStatus === 'number') {
    return { status: rule.strict ? strictStatus : status, headers: {}, body: { [field]: error.rawMessage } }
  }
  // FastAPI's list of what does not fit.
  if (status === 422 && typeof detail === 'string') {
    return { status, headers: {}, body: { detail: JSON.parse(detail) as unknown } }
  }
  return rule.strict ? honestError(error) : ownError(error)
}

function honestError(error: MillraceError): DialectError {
  const { status, headers, body } = chatServer.error(error)
  const { message } = body['error'] as { readonly message: string }
  return { status, headers, body: { detail: message } }
}

/** Statuses that AReaL's servers have, too: too large, and no server there to answer. */
const kept: ReadonlySet<number> = new Set([413, 415, 503])

/** With AReaL's own statuses: nearly every fault is a 500, the client's too. */
function ownError(error: MillraceError): DialectError {
  const honest = honestError(error)
  if (error.cause instanceof SyntaxError) return { status: 400, headers: {}, body: { detail: 'Invalid JSON body' } }
  if (error.code === 'session_ended') return { status: 401, headers: {}, body: { error: unknownKeyText } }
  const isOurs = error.code === 'closed' || error.code === 'overloaded'
  if (kept.has(honest.status) && (isOurs || honest.status < 500)) return honest
  const isFinal = honest.status < 500 && honest.status !== 409 && honest.status !== 429
  // OpenAI's clients try each 500 again, unless they are told that it would be the same.
  return { ...honest, status: 500, headers: isFinal ? { 'x-should-retry': 'false' } : honest.headers }
}

/** An error in a stream that has begun. OpenAI's clients show `message`. */
export function arealStreamError(error: MillraceError, rule: StatusRule): Record<string, unknown> {
  const { status, body } = arealError(error, rule)
  const detail = body['detail'] ?? body['error']
  return { error: { detail, message: detail }, status_code: status }
}
