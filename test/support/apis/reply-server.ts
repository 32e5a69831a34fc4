import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { text } from 'node:stream/consumers'
import { MillraceError } from '../../../src/errors/index.ts'
import type { BackendReply, ReplyDelta } from '../../../src/apis/backend.ts'
import {
  type DialectRequest,
  eventText,
  newReplyId,
  replyDeltas,
  type ReplyHead,
  type ServerDialect,
} from '../../../src/apis/server-side.ts'

/** A server's answer: a reply, its deltas, an error, or a stream that ends with an error. */
export interface Answer {
  readonly reply: BackendReply
  readonly deltas?: readonly ReplyDelta[]
  /** Sent instead of the reply, or in the middle of its stream. */
  readonly error?: MillraceError
  readonly errorAfter?: number
}

export interface ReplyServer extends AsyncDisposable {
  readonly url: string
  readonly requests: DialectRequest[]
}

/** A small server that speaks one API through its writers, for the official clients to read. */
export async function serveReplies(
  dialect: ServerDialect,
  answer: (request: DialectRequest, number: number) => Answer,
): Promise<ReplyServer> {
  const requests: DialectRequest[] = []
  const respond = async (incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> => {
    try {
      const request = dialect.read(JSON.parse(await text(incoming)))
      requests.push(request)
      send(dialect, request, answer(request, requests.length), outgoing)
    } catch (thrown) {
      sendError(dialect, MillraceError.from(thrown, 'internal'), outgoing)
    }
  }
  const server = createServer((incoming, outgoing) => void respond(incoming, outgoing))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const address = server.address()
  const port = typeof address === 'object' && address !== null ? address.port : 0
  return {
    url: `http://127.0.0.1:${port}`,
    requests,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

export function headOf(dialect: ServerDialect, request: DialectRequest): ReplyHead {
  return { id: newReplyId(dialect.api), model: request.model, createdAt: 1_700_000_000, request }
}

function send(dialect: ServerDialect, request: DialectRequest, answer: Answer, outgoing: ServerResponse): void {
  const { reply, error, errorAfter, deltas = replyDeltas(reply.message) } = answer
  if (error && errorAfter === undefined) throw error
  const head = headOf(dialect, request)
  if (!request.stream) {
    outgoing.setHeader('content-type', 'application/json').end(JSON.stringify(dialect.whole(head, reply)))
    return
  }
  outgoing.setHeader('content-type', 'text/event-stream')
  const writer = dialect.stream(head)
  const events = [...writer.start(), ...deltas.slice(0, errorAfter).flatMap((delta) => writer.delta(delta))]
  events.push(...(error ? [dialect.streamError(error)] : writer.end(reply)))
  for (const event of events) outgoing.write(eventText(event))
  outgoing.end()
}

function sendError(dialect: ServerDialect, error: MillraceError, outgoing: ServerResponse): void {
  const { status, headers, body } = dialect.error(error)
  outgoing.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(body))
}
