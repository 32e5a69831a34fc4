export { Gateway, type GatewayOptions, type GatewayStatus, type OfferedModel } from './gateway.ts'
export { type AdminKey, type IssuedKey, issuedKeySchema, refuseSharedKeys } from './key-ring.ts'
export type { Fleet, FleetAnswer } from './fleet.ts'
export { type Caller, sessionPrefix } from './sessions/session-memory.ts'
export { clientClosedStatus } from './requests/client-reply.ts'

export {
  type GatewayEvent,
  gatewayEvents,
  type InteractionEndEvent,
  type InteractionOutcome,
  type SessionEndEvent,
  type SessionStartEvent,
  type SessionUnreadableEvent,
} from './events.ts'
export { type ModelFacts, type ModelOffer, refuseUnknownAliases } from './models.ts'
export type { InteractionCall } from './requests/incoming-request.ts'
export { sessionDamaged } from './errors.ts'
export {
  defaultSessionBounds,
  type SessionBounds,
  type SessionLimits,
  sessionLimitsSchema,
  type SessionOptions,
  type SessionOptionsInput,
  sessionOptionsSchema,
} from './sessions/session-options.ts'
export type { RewardOptions, SessionListQuery, StartedSessions } from './sessions/sessions.ts'
export {
  type SessionAlarm,
  type SessionState,
  sessionSummarySchema,
  sessionViewSchema,
  type SessionSummary,
  type SessionTokens,
  type SessionView,
  storedView,
} from './sessions/session-view.ts'
