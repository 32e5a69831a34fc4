import { STATUS_CODES } from 'node:http'
import type { Socket } from 'node:net'
import { MillraceError } from '../errors/index.ts'
import type { DoorCode } from './_door-error.ts'
import { responseOn } from './_response-on.ts'

/** A client that was told what is wrong has so long to read it. */
const lingerMs = 2_000

/** A request that is refused before any route sees it. */
export interface Refusal {
  readonly status: number
  readonly code: DoorCode | 'usage'
  readonly message: string
}

export interface ClientErrorOptions {
  readonly maxHeaderBytes: number
  readonly maxUploadMs: number
  /** Whether whoever runs the server can raise these two. */
  readonly areSettings: boolean
  /** The body of a refusal, as JSON. */
  readonly body: (refusal: Refusal) => string
}

/** Answers what is not a request, or not in time: no route answers it. */
export function clientErrorAnswers(
  options: ClientErrorOptions,
): (error: Error & { readonly code?: string }, socket: Socket) => void {
  const { maxHeaderBytes, maxUploadMs, areSettings } = options
  const orRaise = (setting: string): string => (areSettings ? `, or raise ${setting}` : '')
  const malformed: Refusal = { status: 400, code: 'usage', message: 'this is not an HTTP request' }
  const refusals = new Map<string | undefined, Refusal>([
    [
      'HPE_INVALID_EOF_STATE',
      { status: 400, code: 'usage', message: 'the request ended before all of it had come; send it again' },
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
    if (code === 'ECONNRESET' || !socket.writable || responseOn(socket)?.headersSent) {
      socket.destroy()
      return
    }
    const refusal = refusals.get(code) ?? malformed
    socket.end(asText(refusal.status, options.body(refusal)))
    giveUpRequestOn(socket, refusal)
    // On a connection that closes with something unread, the answer would be lost.
    socket.resume()
    // Not the socket's own timeout, which begins anew with everything that still comes.
    const lingering = setTimeout(() => socket.destroy(), lingerMs)
    socket.once('close', () => clearTimeout(lingering))
  }
}

/**
 * Nothing can be said on the connection any more: for whoever answers a request that came on it, its client has gone, and
 * whoever still reads it hears why, for the log. The reply is given up first, so that nobody writes it.
 */
function giveUpRequestOn(socket: Socket, { status, message }: Refusal): void {
  const response = responseOn(socket)
  response?.emit('close')
  response?.req.emit('close', new MillraceError('usage', message, { data: { status } }))
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
