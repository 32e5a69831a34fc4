import type { FastifyReply } from 'fastify'
import { MillraceError, ownFaults, type ErrorCode, type WireError } from '../errors/index.ts'

/** What only a door can refuse. */
export type DoorCode =
  | 'unauthorized'
  | 'forbidden'
  | 'not_found'
  | 'method_not_allowed'
  | 'too_large'
  | 'unsupported_type'
  | 'timeout'

/** The body of every reply that is not a result. */
export interface ErrorBody {
  readonly error: { readonly code: ErrorCode | DoorCode; readonly message: string; readonly data?: WireError['data'] }
}

/** What is not here went wrong on our side. */
const statusOf: Readonly<Record<DoorCode, number> & Partial<Record<ErrorCode, number>>> = {
  unauthorized: 401,
  forbidden: 403,
  not_found: 404,
  method_not_allowed: 405,
  timeout: 408,
  too_large: 413,
  unsupported_type: 415,
  usage: 400,
  config_invalid: 400,
  task_invalid: 400,
  run_mismatch: 409,
  overloaded: 429,
  closed: 503,
  store_failed: 503,
  disk_full: 503,
  run_gone: 503,
}

const retryAfterSeconds = '1'

export function refuse(reply: FastifyReply, code: DoorCode | 'usage', message: string): FastifyReply {
  return reply.code(statusOf[code] ?? 500).send({ error: { code, message } } satisfies ErrorBody)
}

/** Any thrown value as a reply. */
export function replyWithError(reply: FastifyReply, thrown: unknown): FastifyReply {
  const refusal = refusalOf(thrown)
  if (refusal) return refuse(reply, refusal.code, refusal.message)
  const error = MillraceError.from(thrown, 'internal')
  // Who refuses knows best.
  const { status = statusOf[error.code] ?? 500 } = error.data
  if (status === 429 || status === 503) reply.header('retry-after', retryAfterSeconds)
  return reply.code(Number(status)).send(errorBody(error))
}

export function errorBody(thrown: unknown): ErrorBody {
  const error = MillraceError.from(thrown, 'internal')
  // Whoever made the mistake is told what it is; a fault of ours is for the log.
  const message = ownFaults[error.code]
  if (message !== undefined) return { error: { code: error.code, message } }
  return { error: error.toWire() }
}

/** What is wrong with a body before anybody has read what it says. */
const bodyCodes: Readonly<Record<string, DoorCode>> = { 413: 'too_large', 415: 'unsupported_type' }

/** fastify refuses some requests before any route sees them, and an intake some bodies. */
function refusalOf(thrown: unknown): { code: DoorCode | 'usage'; message: string } | undefined {
  if (thrown instanceof MillraceError) {
    const bodyCode = thrown.code === 'usage' ? bodyCodes[String(thrown.data['status'])] : undefined
    return bodyCode && { code: bodyCode, message: thrown.rawMessage }
  }
  const code = thrown instanceof Error && 'code' in thrown ? thrown.code : undefined
  switch (code) {
    case 'FST_ERR_CTP_INVALID_MEDIA_TYPE':
      return { code: 'unsupported_type', message: 'send JSON, with content-type: application/json' }
    case 'FST_ERR_BAD_URL':
      return { code: 'usage', message: 'the path is not a valid URL: a % begins two hexadecimal digits' }
    case 'FST_ERR_MAX_PARAM_LENGTH':
      return { code: 'not_found', message: 'no id is that long' }
    default:
      return undefined
  }
}
