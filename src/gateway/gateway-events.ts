import type { MillraceError } from '../errors/index.ts'
import type { ModelReply } from '../inference/index.ts'
import { EventChannel } from '../kit/index.ts'
import type { ClientApi } from '../schema/index.ts'
import type { SessionEndReason } from '../store/index.ts'
import type { SessionAlarm } from './sessions/session-view.ts'

/** Whose event it is: there may be several gateways in a process. */
interface OfGateway {
  /** Of its run. */
  readonly folder: string
}

export interface SessionStartEvent extends OfGateway {
  readonly kind: 'session-start'
  readonly session: string
  readonly group: string
  readonly tenant: string
}

export interface SessionEndEvent extends OfGateway {
  readonly kind: 'session-end'
  readonly session: string
  readonly group: string
  readonly tenant: string
  readonly why: SessionEndReason
  readonly interactions: number
  /** What is wrong with its record, if anything. */
  readonly alarms: readonly SessionAlarm[]
}

/** A session whose record is damaged: nobody can go on with it, but it can be ended. Told once of each. */
export interface SessionUnreadableEvent extends OfGateway {
  readonly kind: 'session-unreadable'
  readonly session: string
  readonly error: MillraceError
}

/**
 * How a request ended. `counted`: only its tokens were asked for. `refused`: before a model was asked. `failed`: the model did not answer, or could not be reached in
 * time. `abandoned`: its client, or its session, was gone first. `repeated`: a retry that got the reply of the request it
 * repeats.
 */
export type InteractionOutcome = 'complete' | 'repeated' | 'counted' | 'refused' | 'failed' | 'abandoned'

export interface InteractionEndEvent extends OfGateway {
  readonly kind: 'interaction-end'
  readonly outcome: InteractionOutcome
  readonly api: ClientApi
  readonly tenant: string
  readonly requestId?: string
  /** None for a request that is only passed on. */
  readonly session?: string
  /** As the gateway calls it; none if the request was refused before that was known. */
  readonly model?: string
  readonly stream: boolean
  /** Whether only its tokens were to be counted. */
  readonly countsOnly?: true
  /** The HTTP status that the client got; 499 if it was gone. */
  readonly status: number
  /** From the request to the end of the reply. */
  readonly ms: number
  readonly replyId?: string
  /** What the model layer says of its call, if a model was asked for this request. */
  readonly reply?: ModelReply
  readonly error?: MillraceError
}

export type GatewayEvent = SessionStartEvent | SessionEndEvent | SessionUnreadableEvent | InteractionEndEvent

export const gatewayEvents = new EventChannel<GatewayEvent>('millrace:gateway')
