import {
  eventText,
  type ReplyHead,
  type ReplyStreamWriter,
  type ServerDialect,
  type WireEvent,
} from '../../dialects/index.ts'
import type { BackendReply, ReplyEvent } from '../../inference/index.ts'
import type { ClientStream } from './_client-stream.ts'

/** A stream whose client speaks another API than the backend: each event is written anew in the client's API. */
export class TranslatedStream implements ClientStream {
  readonly replyId: string
  readonly #writer: ReplyStreamWriter

  constructor(dialect: ServerDialect, head: ReplyHead) {
    this.replyId = head.id
    this.#writer = dialect.stream(head)
  }

  start(): string {
    return textOf(this.#writer.start())
  }

  event(event: ReplyEvent): string {
    let text = ''
    for (const delta of event.deltas) text += textOf(this.#writer.delta(delta))
    return text
  }

  end(reply: BackendReply): string {
    return textOf(this.#writer.end(reply))
  }
}

function textOf(events: readonly WireEvent[]): string {
  let text = ''
  for (const event of events) text += eventText(event)
  return text
}
