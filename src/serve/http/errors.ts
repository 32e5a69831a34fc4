import { type ServerResponse, STATUS_CODES } from 'node:http'
import type { Socket } from 'node:net'
import type { FastifyReply } from 'fastify'
import { type ErrorCode, MillraceError, ownFaults, type WireError } from '../../errors/index.ts'

export type HttpErrorCode =
  | 'unauthorized'
  | 'forbidden'
  | 'not_found'
  | 'method_not_allowed'
  | 'too_large'
  | 'unsupported_type'
  | 'timeout'

interface ErrorBody {
  readonly error: {
    readonly code: ErrorCode | HttpErrorCode
    readonly message: string
    readonly data?: WireError['data']
  }
}

/** What is not here went wrong on our side. */
const statusOf: Readonly<Record<HttpErrorCode, number> & Partial<Record<ErrorCode, number>>> = {
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

export function refuse(reply: FastifyReply, code: HttpErrorCode | 'usage', message: string): FastifyReply {
  return reply.code(statusOf[code] ?? 500).send({ error: { code, message } } satisfies ErrorBody)
}

export function replyWithError(reply: FastifyReply, thrown: unknown): FastifyReply {
  const refusal = refusalOf(thrown)
  if (refusal) return refuse(reply, refusal.code, refusal.message)
  const status = statusOfError(thrown)
  if (status === 429 || status === 503) reply.header('retry-after', retryAfterSeconds)
  return reply.code(status).send(errorBody(thrown))
}

/** The status that a thrown value is answered with. */
export function statusOfError(thrown: unknown): number {
  const refusal = refusalOf(thrown)
  if (refusal) return statusOf[refusal.code] ?? 500
  const error = MillraceError.from(thrown, 'internal')
  // Who refuses knows best.
  const { status = statusOf[error.code] ?? 500 } = error.data
  return Number(status)
}

export function errorBody(thrown: unknown): ErrorBody {
  const error = MillraceError.from(thrown, 'internal')
  // Whoever made the mistake is told what it is; a fault of ours is for the log.
  const message = ownFaults[error.code]
  if (message !== undefined) return { error: { code: error.code, message } }
  return { error: error.toWire() }
}

/** What is wrong with a body before anybody has read what it says. */
const bodyCodes: Readonly<Record<string, HttpErrorCode>> = { 413: 'too_large', 415: 'unsupported_type' }

/** fastify refuses some requests before any route sees them, and an intake some bodies. */
function refusalOf(thrown: unknown): { code: HttpErrorCode | 'usage'; message: string } | undefined {
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
      return { code: 'not_found', message: 'the id is too long' }
    default:
      return undefined
  }
}

/** A client that was told what is wrong has so long to read it. */
const lingerMs = 2_000

export interface Refusal {
  readonly status: number
  readonly code: HttpErrorCode | 'usage'
  readonly message: string
}

interface ClientErrorOptions {
  readonly maxHeaderBytes: number
  readonly maxUploadMs: number
  /** Whether whoever runs the server can raise these two. */
  readonly areSettings: boolean
  readonly body: (refusal: Refusal) => string
  readonly responseOn: (socket: Socket) => ServerResponse | undefined
}

export function clientErrorAnswers(
  options: ClientErrorOptions,
): (error: Error & { readonly code?: string }, socket: Socket) => void {
  const { maxHeaderBytes, maxUploadMs, areSettings } = options
  const orRaise = (setting: string): string => (areSettings ? `, or raise ${setting}` : '')
  const malformed: Refusal = { status: 400, code: 'usage', message: 'this is not an HTTP request' }
  const refusals = new Map<string | undefined, Refusal>([
    [
      'HPE_INVALID_EOF_STATE',
      { status: 400, code: 'usage', message: 'the request ended before it was complete; send it again' },
    ],
    [
      'HPE_HEADER_OVERFLOW',
      {
        status: 431,
        code: 'too_large',
        message: `the headers of a request have at most ${maxHeaderBytes} bytes; send fewer${orRaise('maxHeaderBytes')}`,
      },
    ],
    [
      'ERR_HTTP_REQUEST_TIMEOUT',
      {
        status: 408,
        code: 'timeout',
        message: `the request did not arrive within ${maxUploadMs} ms; send it faster${orRaise('maxUploadMs')}`,
      },
    ],
  ])
  return ({ code }, socket) => {
    // In the middle of a reply, whatever is written would become part of it.
    const response = options.responseOn(socket)
    if (code === 'ECONNRESET' || !socket.writable || response?.headersSent) {
      socket.destroy()
      return
    }
    const refusal = refusals.get(code) ?? malformed
    socket.end(asText(refusal.status, options.body(refusal)))
    if (response) abortRequest(response, refusal)
    // On a connection that closes with something unread, the answer would be lost.
    socket.resume()
    // Not the socket's own timeout, which begins anew with everything that still comes.
    const lingering = setTimeout(() => socket.destroy(), lingerMs)
    socket.once('close', () => clearTimeout(lingering))
  }
}

/** Whoever answers a request on the connection finds its client gone; whoever still reads it hears why. */
function abortRequest(response: ServerResponse, { status, message }: Refusal): void {
  response.emit('close')
  response.req.emit('close', new MillraceError('usage', message, { data: { status } }))
}

function asText(status: number, body: string): string {
  const headers = {
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(body),
    connection: 'close',
  }
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`)
  return `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ''}\r\n${lines.join('')}\r\n${body}`
}

/** Nobody hears it, and it is no fault of ours. */
export function clientGone(): MillraceError {
  return new MillraceError('cancelled', 'the client has gone', { data: { status: 499 } })
}

/** A refusal before anybody knows which API the client speaks: each finds in it what it looks for. The connection closes after it. */
export function plainError(
  status: number,
  { code, message }: { readonly code: string; readonly message: string },
  headers: Readonly<Record<string, string>> = {},
): { readonly status: number; readonly headers: Readonly<Record<string, string>>; readonly body: string } {
  const type = status >= 500 ? 'overloaded_error' : 'invalid_request_error'
  const body = JSON.stringify({ type: 'error', error: { type, code, message, param: null } })
  return {
    status,
    headers: {
      'content-type': 'application/json',
      'content-length': String(Buffer.byteLength(body)),
      connection: 'close',
      ...headers,
    },
    body,
  }
}

/** Whether a refusal tells of something that is wrong with the gateway. Whoever is only told to come again meets no fault. */
export function isServerFault({ data }: MillraceError, status: number): boolean {
  return status >= 500 && data['retryAfterMs'] === undefined
}
