import { eventText, replyDeltas, type ReplyHead, type ServerDialect } from '../../dialects/index.ts'
import type { ErrorCode, MillraceError } from '../../errors/index.ts'
import type { BackendReply } from '../../inference/index.ts'
import type { ClientReply } from './client-reply.ts'

export const noHeaders: Readonly<Record<string, string>> = {}

/** Sends a complete reply to a client that has seen nothing of it yet: whole, or as the stream it asked for. */
export function sendReply(client: ClientReply, dialect: ServerDialect, head: ReplyHead, reply: BackendReply): void {
  if (!head.request.stream) {
    sendWhole(client, JSON.stringify(dialect.whole(head, reply)))
    return
  }
  const writer = dialect.stream(head)
  const { original, message } = reply
  const isOwn = original?.api === dialect.api
  const events = [
    ...writer.start(),
    ...(isOwn
      ? writer.repeat(original.output, message)
      : replyDeltas(message, dialect.streamedArguments).flatMap((delta) => writer.delta(delta))),
    ...writer.end(reply),
  ]
  client.beginStream(noHeaders)
  sendRest(client, events.map(eventText).join(''))
}

export function sendWhole(client: ClientReply, body: string): void {
  client.whole(200, noHeaders, body)
}

/** Sends a sign of life in a stream whose events are yet to come. */
export function sendBeat(client: ClientReply, text: string): void {
  client.beginStream(noHeaders)
  client.write(text, ignore)
}

/** Sends the last text of a stream. Nothing follows it, so a slow client need not be waited for. */
export function sendRest(client: ClientReply, text: string): void {
  if (text !== '') client.write(text, ignore)
  client.endStream()
}

/** Errors that no retry mends, whatever their status. */
const finalCodes: ReadonlySet<ErrorCode> = new Set(['budget_exhausted', 'session_ended', 'session_damaged'])

/** Where a client gets an error: instead of a reply, or in the middle of one. */
export type ErrorPlace = 'instead' | 'in-stream'

/** Sends an error as the client's API writes it, alone or in a stream, which then has no proper end. Returns the status. */
export function sendError(
  client: ClientReply,
  dialect: ServerDialect,
  error: MillraceError,
  place: ErrorPlace = 'instead',
): number {
  if (place === 'in-stream') {
    sendRest(client, eventText(dialect.streamError(error)))
    return 200
  }
  const { status, headers, body } = dialect.error(error)
  // OpenAI's and Anthropic's clients heed this header; without it they would try a used-up budget again.
  const isFinal = finalCodes.has(error.code)
  client.whole(status, isFinal ? { ...headers, 'x-should-retry': 'false' } : headers, JSON.stringify(body))
  return status
}

function ignore(): void {}
