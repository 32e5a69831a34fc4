import type { MillraceError } from '../errors/index.ts'
import type { Price } from './model-config.ts'
import type { ModelReply } from './model-reply.ts'
import type { ModelRequest } from './backend.ts'

/** How a call tells its rollout that it stands still through no fault of its own, so that the working clock can too. */
export interface CallHooks {
  readonly signal: AbortSignal
  onWaitStart?(): void
  onWaitEnd?(): void
  /** A try is on its way from now on. */
  onSend?(call: SentCall): void
  /** A try failed after this long, with this: time that turns out to have been a wait as well. */
  onFailedTry?(ms: number, error: MillraceError): void
  /** It waits until a backend is back, whose last try, anybody's, failed with this. Not called if that is not known here. */
  onParked?(error: MillraceError): void
}

/** A call that was sent, for whoever has to say later what it was waiting for. */
export interface SentCall {
  /** The backend it was last sent to. */
  readonly backend: string
  /** When that was, by `performance.now()`. */
  readonly sentAt: number
  /**
   * Whether it waits for a backend that hangs, as far as can be told: it has said nothing since, neither to this call nor to
   * another one from here, and for longer than it ever took to begin an answer.
   */
  readonly isUnheard: boolean
  /** Whether its answer is still to come, or the rest of it. False while it waits to be sent again. */
  readonly isUnderWay: boolean
}

/** Something that changed about how much may be asked of a model: recorded with the run. */
export interface LimitChange {
  readonly model: string
  readonly at: number
  readonly kind: 'concurrency' | 'parked' | 'released'
  readonly from: number
  readonly to: number
  readonly why: string
}

export interface ModelStatus {
  readonly name: string
  readonly limit: number
  readonly inFlight: number
  readonly waiting: number
  readonly parked: number
  /** Of those in flight, if any: probes of backends that let nobody else in, one of each at most. */
  readonly probing?: number
  /** None of its backends may be asked now: whatever comes waits until one answers, or may be probed. */
  readonly isShut?: boolean
  /** What a backend that calls are parked for failed with last, as far as that is known. */
  readonly parkedBecause?: string
  readonly calls: number
  readonly tries: number
}

/** A named policy. `call` never rejects because of a backend: what went wrong is in the reply. */
export interface ModelClient extends AsyncDisposable {
  readonly name: string
  /** undefined where none is known. */
  readonly price: Price | undefined
  call(request: ModelRequest, hooks: CallHooks): Promise<ModelReply>
  /** How many tokens its prompt has, as a backend counts them. Rejects if none can, or the one that was asked does not. */
  countTokens(request: ModelRequest, hooks: CallHooks): Promise<number>
  /** The session is over: where it was served need not be remembered. */
  endSession(sessionId: string): void
  status(): ModelStatus
}
