export type { Caller } from './caller.ts'
export type { ClientReply } from './interactions/client-reply.ts'
export { exportSessions } from './export/export-sessions.ts'
export type { ExportSessionsOptions } from './export/export-sessions.ts'
export { Gateway } from './gateway.ts'
export type { GatewayOptions, GatewayStatus, OfferedModel } from './gateway.ts'
export { gatewayEvents } from './gateway-events.ts'
export type {
  GatewayEvent,
  InteractionEndEvent,
  InteractionOutcome,
  SessionEndEvent,
  SessionStartEvent,
  SessionUnreadableEvent,
} from './gateway-events.ts'
export { refuseUnknownAliases } from './gateway-models.ts'
export type { ModelFacts, ModelOffer } from './gateway-models.ts'
export type { InteractionCall } from './interactions/incoming-request.ts'
export { goneStatus } from './interactions/live-interaction.ts'
export { sessionDamaged } from './_refusals.ts'
export { refuseSharedKeys } from './_keys.ts'
export type { AdminKey } from './_keys.ts'
export { defaultSessionBounds } from './sessions/session-bounds.ts'
export type { SessionBounds } from './sessions/session-bounds.ts'
export type { RewardOptions, SessionListQuery, StartedSessions } from './sessions/sessions.ts'
export { sessionLimitsSchema, sessionOptionsSchema } from './sessions/session-options.ts'
export type { SessionLimits, SessionOptions, SessionOptionsInput } from './sessions/session-options.ts'
export type { SessionAlarm, SessionState, SessionSummary, SessionTokens, SessionView } from './sessions/session-view.ts'
export { storedView } from './sessions/stored-view.ts'
