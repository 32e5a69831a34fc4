import { type BackendReply, eventText, replyDeltas, type ReplyHead, type ServerDialect } from '../apis/index.ts'
import type { ErrorCode, MillraceError } from '../errors/index.ts'
import { timerMs } from '../kit/index.ts'

/** Where the reply to one request goes. The HTTP server implements it; callers in the same process bring their own. */
export interface ClientReply {
  readonly isGone: boolean
  /** Calls `listener` once if the client goes away; undefined removes it. There is one listener at a time. */
  onGone(listener: (() => void) | undefined): void
  whole(status: number, headers: Readonly<Record<string, string>>, body: string): void
  /** Sends the head of a stream of server-sent events, with status 200, now. A second call does nothing. */
  beginStream(headers: Readonly<Record<string, string>>): void
  /** False if the client can take no more for now; `resume` is then called once it can. */
  write(text: string, resume: () => void): boolean
  endStream(): void
  /** Only of a client that takes several replies together: resolves when the others are there, or it is gone. */
  ready?(): Promise<void>
}

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

function sendBeat(client: ClientReply, text: string): void {
  client.beginStream(noHeaders)
  client.write(text, ignore)
}

/** Sends the last text of a stream. Nothing follows it, so a slow client need not be waited for. */
export function sendRest(client: ClientReply, text: string): void {
  if (text !== '') client.write(text, ignore)
  client.endStream()
}

const finalCodes: ReadonlySet<ErrorCode> = new Set(['budget_exhausted', 'session_ended', 'session_damaged'])

export type ErrorDelivery = 'instead' | 'in-stream'

/** Sends an error as the client's API writes it, alone or in a stream, which then has no proper end. Returns the status. */
export function sendError(
  client: ClientReply,
  dialect: ServerDialect,
  error: MillraceError,
  delivery: ErrorDelivery = 'instead',
): number {
  if (delivery === 'in-stream') {
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

/** A comment in the syntax of server-sent events, which clients skip. */
const beat = ': on its way\n\n'

/** Sends a comment every so often while a stream's events are yet to come: many clients give up without a byte for long. */
export class Heartbeat {
  readonly #timer: NodeJS.Timeout
  /** Whether the client has been promised a stream: an error can then no longer be sent as a status. */
  isPromised = false

  /** `isUndecided`: whether the reply may still be refused with a status. */
  constructor(client: ClientReply, everyMs: number, isUndecided: () => boolean) {
    this.#timer = setInterval(() => {
      if (client.isGone || (!this.isPromised && isUndecided())) return
      this.isPromised = true
      sendBeat(client, beat)
    }, timerMs(everyMs))
  }

  stop(): void {
    clearInterval(this.#timer)
  }
}
