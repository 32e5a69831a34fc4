import { EventDraft, type ReplySink, type StreamAssembler } from '../../apis/index.ts'
import type { EventSink } from '../../kit/index.ts'

/** Passes the events of a stream to the assembler and to the sink that takes the reply while it arrives. */
export class SinkFeed implements EventSink {
  readonly #assembler: StreamAssembler
  readonly #sink: ReplySink
  readonly #onResume: () => void
  /** What has come of the read that is under way. Bounded by what one read brings. */
  #events: EventDraft[] = []
  #hasTaken = false
  #isPaused = false

  constructor(assembler: StreamAssembler, sink: ReplySink, onResume: () => void) {
    this.#assembler = assembler
    this.#sink = sink
    this.#onResume = onResume
  }

  get isPaused(): boolean {
    return this.#isPaused
  }

  onEvent(data: string): void {
    const event = new EventDraft(data)
    this.#assembler.onEvent(data, event)
    event.isEnd = this.#assembler.isComplete
    this.#events.push(event)
  }

  /** Hands the events of one read over: together, so that the sink can pass them on in one write. */
  endRead(): void {
    if (this.#events.length === 0) return
    const events = this.#events
    this.#events = []
    this.#hasTaken = true
    // Set before the sink is asked, because a sink may call `resume` before it returns.
    this.#isPaused = true
    if (this.#sink.onEvents(events, this.#resume)) this.#isPaused = false
  }

  passPartial(): void {
    if (this.#hasTaken) this.#sink.onPartial?.(this.#assembler.partial())
  }

  readonly #resume = (): void => {
    if (!this.#isPaused) return
    this.#isPaused = false
    this.#onResume()
  }
}
