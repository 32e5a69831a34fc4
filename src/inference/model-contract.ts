import type { MillraceError } from '../errors/index.ts'
import type { Price } from './model-config.ts'
import type { ModelReply } from './model-reply.ts'
import type { ModelRequest } from './backend.ts'

/** How a call tells its rollout that it waits through no fault of the rollout's, so that the working clock can stand still. */
export interface CallHooks {
  readonly signal: AbortSignal
  onWaitStart?(): void
  onWaitEnd?(): void
  /** A try is being sent. */
  onSend?(call: SentCall): void
  /** A try failed after this long, with this error: its time counts as waiting, too. */
  onFailedTry?(ms: number, error: MillraceError): void
  /** The call is parked until a backend is back. `error` is that backend's last failure; if none is known, this is not called. */
  onParked?(error: MillraceError): void
}

/** A call that was sent, for code that has to say later what the call was waiting for. */
export interface SentCall {
  /** The backend the call was last sent to. */
  readonly backend: string
  /** When the call was last sent, by `performance.now()`. */
  readonly sentAt: number
  /**
   * Whether the call waits for a backend that seems to hang: one that has said nothing since `sentAt`, neither to this call
   * nor to another one from here, and for longer than it ever took to begin an answer.
   */
  readonly isUnheard: boolean
  /** Whether the answer, or the rest of it, is still to come. False while the call waits to be sent again. */
  readonly isUnderWay: boolean
}

/** A change of how much may be asked of a model: recorded with the run. */
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
  /** How many of those in flight are probes of closed backends, at most one for each. Missing if there are none. */
  readonly probing?: number
  /** True if no backend of the model may be asked now: new calls wait until one answers, or may be probed. */
  readonly isShut?: boolean
  /** The last failure of a backend that calls are parked for, if it is known here. */
  readonly parkedBecause?: string
  readonly calls: number
  readonly tries: number
}

/** A named policy. `call` never rejects because of a backend: the failure is in the reply. */
export interface ModelClient extends AsyncDisposable {
  readonly name: string
  /** Undefined if no price is known. */
  readonly price: Price | undefined
  call(request: ModelRequest, hooks: CallHooks): Promise<ModelReply>
  /** How many tokens the prompt has, as a backend counts them. Rejects if no backend can count, or if counting failed. */
  countTokens(request: ModelRequest, hooks: CallHooks): Promise<number>
  /** The session is over: which backend served it need not be remembered. */
  endSession(sessionId: string): void
  status(): ModelStatus
}
