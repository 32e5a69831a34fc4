import type { ReplySink } from '../backend.ts'
import type { StreamAssembler } from '../wire/dialect.ts'
import { EventDraft } from '../wire/event-draft.ts'
import type { EventSink } from './sse-decoder.ts'

/** Whom a feed tells that its sink goes on taking. */
export interface FeedOwner {
  onResume(): void
}

/** Stands between the events of a stream and its assembler where a sink takes the reply while it arrives. */
export class SinkFeed implements EventSink {
  readonly #assembler: StreamAssembler
  readonly #sink: ReplySink
  readonly #owner: FeedOwner
  /** `broken`: it is over, even if what was read already holds more events. */
  #state: 'fresh' | 'taking' | 'broken' = 'fresh'
  #isHeld = false

  constructor(assembler: StreamAssembler, sink: ReplySink, owner: FeedOwner) {
    this.#assembler = assembler
    this.#sink = sink
    this.#owner = owner
  }

  /** Whether the sink wants no more for now. What it said last counts. */
  get isHeld(): boolean {
    return this.#isHeld
  }

  onEvent(data: string): void {
    if (this.#state === 'broken') return
    const event = new EventDraft(data)
    this.#assembler.onEvent(data, event)
    event.isEnd = this.#assembler.isComplete
    this.#state = 'taking'
    // Held before it is asked: a sink may call `resume` even before it returns.
    this.#isHeld = true
    if (this.#sink.onEvent(event, this.#resume)) this.#isHeld = false
  }

  /** The reply ends here, without a proper end. */
  breakOff(): void {
    const hasTaken = this.#state === 'taking'
    this.#state = 'broken'
    if (hasTaken) this.#sink.onPartial?.(this.#assembler.partial())
  }

  readonly #resume = (): void => {
    if (!this.#isHeld) return
    this.#isHeld = false
    this.#owner.onResume()
  }
}
