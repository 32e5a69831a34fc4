import type { PartialReply, ReplyEvent, ReplySink } from './backend.ts'

/** Those with which the APIs open a stream: `response.created` and `response.in_progress`, `message_start` and `ping`. */
const maxOpening = 2

/**
 * Passes a reply on, and remembers whether anything of it was: from then on the call cannot be tried again. So the first
 * events, as long as they say nothing, wait for one that does: servers begin a stream before they know that they can reply.
 */
export class WatchedSink implements ReplySink {
  hasTaken = false
  readonly #sink: ReplySink
  #opening: ReplyEvent[] = []

  constructor(sink: ReplySink) {
    this.#sink = sink
  }

  /** Another try begins anew. */
  restart(): void {
    this.#opening = []
  }

  onEvent(event: ReplyEvent, resume: () => void): boolean {
    if (!this.hasTaken) {
      if (event.deltas.length === 0 && !event.isEnd && this.#opening.length < maxOpening) {
        this.#opening.push(event)
        return true
      }
      this.hasTaken = true
      for (const held of this.#opening) this.#sink.onEvent(held, resume)
    }
    return this.#sink.onEvent(event, resume)
  }

  onPartial(partial: PartialReply): void {
    if (this.hasTaken) this.#sink.onPartial?.(partial)
  }
}
