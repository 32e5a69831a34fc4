import type { DialectError, WireEvent } from '../dialects/index.ts'
import type { MillraceError } from '../errors/index.ts'
import type { ModelRequest, ReplyDelta } from '../inference/index.ts'
import type { JsonObject } from '../schema/index.ts'
import type { Delivery } from './_answer.ts'
import type { Origin } from './_paced-job.ts'
import type { Sample } from './_sample.ts'
import type { TokenGroup } from './_token-groups.ts'

/** One way in: how its requests are read and its errors written. */
export interface Door {
  readonly api: Origin['api']
  /** Throws `model_rejected` with what is wrong with the body. */
  read(body: JsonObject): Question
  error(error: MillraceError): DialectError
  /** An error in the middle of a stream. */
  streamError(error: MillraceError): WireEvent
}

/** A request that was read, and how its reply is written. */
export interface Question {
  /** Undefined where the API names none. */
  readonly model: string | undefined
  readonly wantsStream: boolean
  /** What the client calls it, if it does. */
  readonly requestName: string | undefined
  readonly request: SimulatorRequest
  replyId(delivery: Delivery): string
  whole(delivery: Delivery, sample: Sample): Record<string, unknown>
  stream(delivery: Delivery): StreamWriter
}

export interface SimulatorRequest extends Omit<ModelRequest, 'sessionId'> {
  /** The prompt itself, where an API takes it in tokens or without a chat template. */
  readonly promptIds?: Int32Array
}

/** The events that a piece of a reply makes, and what they say. */
export interface StreamStep {
  readonly events: readonly WireEvent[]
  readonly deltas: readonly ReplyDelta[]
}

/** Writes one reply in pieces; `version` is that of the tokens in the piece. */
export interface StreamWriter {
  start(version: string | undefined): StreamStep
  group(group: TokenGroup, version: string | undefined): StreamStep
  /** How it ended: the last tokens, the reason, the usage. */
  end(sample: Sample): StreamStep
}
