import type { BackendReply, ModelRequest } from '../apis/index.ts'
import type { MillraceError } from '../errors/index.ts'
import { EventChannel } from '../kit/index.ts'
import type { LogprobsKind, Usage } from '../schema/index.ts'
import type { Price } from './config.ts'
import type { WeightVersions } from './weight-versions.ts'

/** How a call tells its rollout that it waits through no fault of the rollout's, so that the working clock can stand still. */
export interface CallHooks {
  readonly signal: AbortSignal
  onWaitStart?(): void
  onWaitEnd?(): void
  onSend?(call: SentCall): void
  /** A try failed after this long, with this error: its time counts as waiting, too. */
  onFailedTry?(ms: number, error: MillraceError): void
  /** The call is parked until a backend is back. `error` is that backend's last failure; if none is known, this is not called. */
  onParked?(error: MillraceError): void
}

/** A call that was sent, for code that has to say later what the call was waiting for. */
export interface SentCall {
  readonly backend: string
  readonly sentAt: number
  /** Whether the backend seems to hang: silent to all calls since `sentAt`, for longer than it ever took to begin an answer. */
  readonly isSilent: boolean
  /** Whether the answer, or the rest of it, is still to come. False while the call waits to be sent again. */
  readonly isUnderWay: boolean
}

export interface LimitChange {
  readonly model: string
  readonly at: number
  readonly kind: 'concurrency' | 'parked' | 'released'
  readonly from: number
  readonly to: number
  readonly why: string
}

/** One backend of a model with several, as the routing of this worker knows it. */
export interface BackendStatus {
  readonly name: string
  readonly inFlight: number
  /** The tokens of the contexts of those requests, as far as they are known. */
  readonly contextTokens: number
  /** Sessions that stay with the backend. */
  readonly sessions: number
  /** Its share of new sessions beside a backend that does well, which has 1. */
  readonly weight: number
  /** How often a session left it because it had too much to do. */
  readonly affinityBreaks: number
  /** What its engine says of itself, where a gateway asks. */
  readonly kvUsage?: number
  readonly queued?: number
}

export interface ModelStatus {
  readonly name: string
  readonly limit: number
  readonly inFlight: number
  readonly waiting: number
  readonly parked: number
  /** How many of those in flight are probes of closed backends, at most one for each. Missing if there are none. */
  readonly probing?: number
  /** True if no backend of the model may be asked now: new calls wait until one answers, or may be probed. */
  readonly isShut?: boolean
  /** The last failure of a backend that calls are parked for, if it is known here. */
  readonly parkedBecause?: string
  readonly calls: number
  readonly tries: number
  /** Missing if there is only one. */
  readonly backends?: readonly BackendStatus[]
}

/** A named policy. `call` never rejects because of a backend: the failure is in the reply. */
export interface ModelClient extends AsyncDisposable {
  readonly name: string
  readonly price: Price | undefined
  /** The versions of the weights that backends have named, to this worker or another one. */
  readonly versions: WeightVersions
  call(request: ModelRequest, hooks: CallHooks): Promise<ModelReply>
  /** How many tokens the prompt has, as a backend counts them. Rejects if no backend can count, or if counting failed. */
  countTokens(request: ModelRequest, hooks: CallHooks): Promise<number>
  /** The session is over: which backend served it need not be remembered. */
  endSession(sessionId: string): void
  status(): ModelStatus
}

/**
 * `truncated`: the stream ended before the backend said so. `aborted`: our side stopped the call. `failed`: the backend did.
 */
export type ModelReply = CompleteReply | InvalidReply

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
  readonly cost: number | null
}

export interface InvalidReply extends CallFacts {
  readonly status: 'truncated' | 'aborted' | 'failed'
  readonly error: MillraceError
}

/** One call as listeners see it: the same object from its start to its end. */
export interface ModelCall {
  readonly model: string
  readonly request: ModelRequest
  /** On the clock of `performance.now()`. */
  readonly startedAt: number
  /** A listener that traces the call sets this when the call starts; the backend gets it as a header. */
  traceparent?: string
}

export type ModelCallEvent =
  | { readonly kind: 'start'; readonly call: ModelCall }
  | { readonly kind: 'try-failed'; readonly model: string; readonly error: MillraceError }
  /** `provider` is that of the backend which was asked last. Usage that the server does not report is estimated. */
  | { readonly kind: 'end'; readonly call: ModelCall; readonly reply: ModelReply; readonly provider: string }

export const modelCalls = new EventChannel<ModelCallEvent>('millrace:model-call')

/** A reply of a rollout that follows an earlier one, where the tokens of both are known. */
export interface LaterTurn extends Pick<Usage, 'driftedTokens'> {
  readonly model: string
}

export const laterTurns = new EventChannel<LaterTurn>('millrace:later-turn')
