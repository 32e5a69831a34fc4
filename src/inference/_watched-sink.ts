import type { PartialReply, ReplyEvent, ReplySink } from './backend.ts'

/** Passes a reply on to its sink, and remembers whether the sink got anything: from then on the call cannot be tried again. */
export class WatchedSink implements ReplySink {
  hasTaken = false
  readonly #sink: ReplySink

  constructor(sink: ReplySink) {
    this.#sink = sink
  }

  onEvents(events: readonly ReplyEvent[], resume: () => void): boolean {
    this.hasTaken = true
    return this.#sink.onEvents(events, resume)
  }

  onPartial(partial: PartialReply): void {
    this.#sink.onPartial?.(partial)
  }
}
