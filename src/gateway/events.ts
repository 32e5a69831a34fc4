import type { MillraceError } from '../errors/index.ts'
import type { ModelReply } from '../inference/index.ts'
import { EventChannel } from '../kit/index.ts'
import type { ClientApi } from '../schema/index.ts'
import type { SessionEndReason } from '../store/index.ts'
import type { SessionAlarm } from './sessions/session-view.ts'
import type { TurnTokens } from './sessions/session-tree.ts'

/** The gateway that an event is from: a process may have several. */
interface OfGateway {
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
  readonly alarms: readonly SessionAlarm[]
}

/** A session whose record is damaged: it can only be ended. Reported once per session. */
export interface SessionUnreadableEvent extends OfGateway {
  readonly kind: 'session-unreadable'
  readonly session: string
  readonly error: MillraceError
}

/**
 * How a request ended. `counted`: only its tokens were counted. `refused`: refused before a model was asked. `failed`: the
 * model did not answer, or could not be reached in time. `abandoned`: its client, or its session, was gone first.
 * `repeated`: a retry that got the reply of the request it repeats.
 */
export type InteractionOutcome = 'complete' | 'repeated' | 'counted' | 'refused' | 'failed' | 'abandoned'

export interface InteractionEndEvent extends OfGateway {
  readonly kind: 'interaction-end'
  readonly outcome: InteractionOutcome
  readonly api: ClientApi
  readonly tenant: string
  readonly requestId?: string
  /** Missing for a request that is passed on without a session. */
  readonly session?: string
  /** The gateway's name of the model; missing if the request was refused before it was known. */
  readonly model?: string
  readonly stream: boolean
  readonly countsOnly?: true
  readonly status: number
  readonly ms: number
  readonly replyId?: string
  /** How the tokens of a later turn follow those before it, where both are known. */
  readonly turn?: TurnTokens
  readonly reply?: ModelReply
  readonly error?: MillraceError
}

/** Something about a backend that nobody asked for, such as a pause that ended by itself. */
export interface FleetAlarmEvent extends OfGateway {
  readonly kind: 'fleet-alarm'
  readonly message: string
}

export type GatewayEvent =
  | SessionStartEvent
  | SessionEndEvent
  | SessionUnreadableEvent
  | InteractionEndEvent
  | FleetAlarmEvent

export const gatewayEvents = new EventChannel<GatewayEvent>('millrace:gateway')
