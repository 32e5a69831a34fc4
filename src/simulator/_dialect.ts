import type { ModelRequest } from '../inference/index.ts'
import type { Delivery } from './_answer.ts'

/** A request body that passed. */
export interface WireRequest {
  readonly model: string
  readonly stream: boolean
  /** Only asked of a stream; a whole reply always has its usage. */
  readonly includeUsage: boolean
  readonly wantsTokenIds: boolean
  readonly wantsLogprobs: boolean
  readonly request: ModelRequest
}

/** One event of a stream, as it goes over the wire, and how many tokens must have been sampled before it can. */
export interface StreamEvent {
  readonly text: string
  readonly tokens: number
  /** Tells the client that the reply is complete: what a cut stream lacks. */
  readonly isEnd: boolean
}

/** An API that the simulator speaks: how its bodies are read and written. */
export interface Dialect {
  /** Throws `model_rejected` with what is wrong with the body. */
  read(body: unknown): WireRequest
  whole(wire: WireRequest, delivery: Delivery): string
  /** `groupSize` tokens at most go into one event. */
  events(wire: WireRequest, delivery: Delivery, groupSize: number): StreamEvent[]
}
