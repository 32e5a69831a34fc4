import type { MillraceError } from '../errors/index.ts'
import type { LogprobsKind } from '../schema/index.ts'
import type { BackendReply } from './backend.ts'

/**
 * The result of a model call, all tries included. `truncated`: the stream ended before the backend said so. `aborted`: our
 * side stopped the call. `failed`: the backend failed, or could not be reached. Only a `complete` reply has a message.
 */
export type ModelReply = CompleteReply | BrokenReply

export interface CallFacts {
  readonly model: string
  readonly backend: string
  readonly tries: number
  /** Time on the wire in the last try; all before it is `waitMs` (permits, limits, back-off, parking, failed tries). */
  readonly ms: number
  readonly waitMs: number
  /** What the backend's log-probabilities are, if that is known. */
  readonly logprobs?: LogprobsKind
}

export interface CompleteReply extends CallFacts, BackendReply {
  readonly status: 'complete'
  /** US dollars; null where no price is known. */
  readonly cost: number | null
}

export interface BrokenReply extends CallFacts {
  readonly status: 'truncated' | 'aborted' | 'failed'
  readonly error: MillraceError
}
