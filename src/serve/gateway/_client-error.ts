import { STATUS_CODES } from 'node:http'
import type { Socket } from 'node:net'
import { responseOn } from '../_response-on.ts'
import { plainError, type PlainError } from './_plain-error.ts'
import type { GatewayBounds } from './gateway-bounds.ts'

/** A client that was told what is wrong has so long to read it. */
const lingerMs = 2_000

/** Answers what is not a request, or not in time: it never reaches a route. */
export function clientErrorAnswers(
  bounds: Pick<GatewayBounds, 'maxHeaderBytes' | 'maxUploadMs'>,
): (error: Error & { readonly code?: string }, socket: Socket) => void {
  const { maxHeaderBytes, maxUploadMs } = bounds
  const malformed = plainError(400, { code: 'usage', message: 'this is not an HTTP request' })
  const answers = new Map([
    [
      'HPE_HEADER_OVERFLOW',
      plainError(431, {
        code: 'too_large',
        message: `the headers of a request have at most ${maxHeaderBytes} bytes; send fewer, or raise maxHeaderBytes`,
      }),
    ],
    [
      'ERR_HTTP_REQUEST_TIMEOUT',
      plainError(408, {
        code: 'timeout',
        message: `the request did not arrive within ${maxUploadMs} ms; send it faster, or raise maxUploadMs`,
      }),
    ],
  ])
  return ({ code }, socket) => {
    // In the middle of a reply, whatever is written would become part of it.
    if (code === 'ECONNRESET' || !socket.writable || responseOn(socket)?.headersSent) {
      socket.destroy()
      return
    }
    socket.end(asText(answers.get(code ?? '') ?? malformed))
    giveUpRequestOn(socket)
    // On a connection that closes with something unread, the answer would be lost.
    socket.resume()
    // Not the socket's own timeout, which begins anew with everything that still comes.
    const lingering = setTimeout(() => socket.destroy(), lingerMs)
    socket.once('close', () => clearTimeout(lingering))
  }
}

/** Nothing can be said on the connection any more: for whoever reads or answers a request that came on it, its client has gone. */
function giveUpRequestOn(socket: Socket): void {
  const response = responseOn(socket)
  response?.req.emit('close')
  response?.emit('close')
}

function asText({ status, headers, body }: PlainError): string {
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`)
  return `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ''}\r\n${lines.join('')}\r\n${body}`
}
