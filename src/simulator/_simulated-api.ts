import type { DialectError, WireEvent } from '../dialects/index.ts'
import type { MillraceError } from '../errors/index.ts'
import type { ModelRequest, ReplyDelta } from '../inference/index.ts'
import type { JsonObject } from '../schema/index.ts'
import type { Delivery } from './_simulator-answer.ts'
import type { Origin } from './_paced-job.ts'
import type { Sample } from './_sample.ts'
import type { TokenGroup } from './_token-groups.ts'

/** One of the APIs that a server takes: how its requests are read and its errors written. */
export interface SimulatedApi {
  readonly name: Origin['api']
  /** Throws `model_rejected` with what is wrong with the body. */
  read(body: JsonObject): ApiRequest
  error(error: MillraceError): DialectError
  /** An error in the middle of a stream. */
  streamError(error: MillraceError): WireEvent
}

/** A request that was read, and the way to write its reply. */
export interface ApiRequest {
  /** Undefined where the API names no model. */
  readonly model: string | undefined
  readonly wantsStream: boolean
  /** The client's name for the request, if it gave one. */
  readonly requestName: string | undefined
  readonly request: SimulatorRequest
  replyId(delivery: Delivery): string
  whole(delivery: Delivery, sample: Sample): Record<string, unknown>
  stream(delivery: Delivery): StreamWriter
}

export interface SimulatorRequest extends Omit<ModelRequest, 'sessionId'> {
  /** The prompt's ids, where an API takes tokens or a text without a chat template. */
  readonly promptIds?: Int32Array
}

/** The events of one piece of a reply, and the deltas in them. */
export interface StreamStep {
  readonly events: readonly WireEvent[]
  readonly deltas: readonly ReplyDelta[]
}

/** Writes one reply in pieces; `version` is the weights' version of the tokens in the piece. */
export interface StreamWriter {
  start(version: string | undefined): StreamStep
  group(group: TokenGroup, version: string | undefined): StreamStep
  /** Writes the end: the last tokens, the reason, the usage. */
  end(sample: Sample): StreamStep
}
