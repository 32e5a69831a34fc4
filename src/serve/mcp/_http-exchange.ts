import type { ServerResponse } from 'node:http'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import type { FastifyRequest } from 'fastify'

/** A request as the SDK wants it: the body, which was read already, is handed over beside it. */
export function webRequest({ method, url, headers }: FastifyRequest): Request {
  const copied = new Headers()
  for (const [name, value] of Object.entries(headers)) {
    for (const each of typeof value === 'string' ? [value] : (value ?? [])) copied.append(name, each)
  }
  return new Request(new URL(url, 'http://localhost'), { method, headers: copied })
}

/** Sends what the SDK answers, which may be a stream of events. Ends when it has been sent, or the client has gone. */
export async function sendWebResponse(response: Response, reply: ServerResponse): Promise<void> {
  reply.writeHead(response.status, Object.fromEntries(response.headers))
  if (!response.body) {
    reply.end()
    return
  }
  // A stream on which nothing happens for a while must still be seen to have begun.
  reply.flushHeaders()
  // A client that goes away in the middle is no fault: the stream is cancelled, and that is all.
  await pipeline(Readable.fromWeb(response.body), reply).catch(() => {})
}

/** A refusal in the words of JSON-RPC, for a request that no session will see. */
export function refusal(status: number, code: number, message: string): Response {
  return Response.json({ jsonrpc: '2.0', error: { code, message }, id: null }, { status })
}
