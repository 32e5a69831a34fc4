export { requireAccessKey, requireFreePort } from './http/server.ts'
export type { ListedRollout, ListFilter, RolloutPage } from './rollouts/list-rollouts.ts'
export type { Readiness } from './http/status-routes.ts'
export type { Submission } from './requests/request-intake.ts'
export type { CodecStatus } from './codec/codec-pool.ts'
export type { RolloutHead } from './rollouts/reply-schemas.ts'
export { type BackendDirectory, findModels, type FoundModels } from './gateway/backend-directory.ts'
export type { ProbeResult, FindModelsOptions } from './gateway/backend-models.ts'
export type { BackendList, FleetReply, PauseRequest, ResumeRequest, VersionRequest } from './gateway/fleet-schemas.ts'
export type { RewardedSession, RewardRequest, StartedGroup } from './gateway/session-schemas.ts'
export {
  checkedPublicUrl,
  defaultGatewayBounds,
  type GatewayBounds,
  type GatewayConfig,
  type GatewayConfigContext,
  type GatewayConfigInput,
  parseGatewayConfig,
} from './gateway/gateway-config.ts'
export { defaultTenant, requireAdminKeys, requireOwnMachine, type TenantKey } from './gateway/admission.ts'
export { GatewayServer, type GatewayServerOptions } from './gateway/gateway-server.ts'
export type { ArealOptions } from './compat/areal/areal-wire.ts'
export type { GymOptions } from './compat/nemo-gym/wire-scope.ts'
export { RolloutServer, type RolloutServerOptions } from './rollouts/rollout-server.ts'
export type { KnownRequest, ListedRequest, RequestPage, RolloutState } from './requests/known-request.ts'
export { ServedTools } from './mcp/served-tools.ts'
export { HttpToolServer } from './mcp/http-tool-server.ts'
export { StdioToolServer } from './mcp/stdio-tool-server.ts'
export type { ResultReader, SettledRollout } from './requests/active-request.ts'
export type { RolloutRequest } from './requests/request-body.ts'
export { RolloutService } from './rollouts/rollout-service.ts'
export { ServedAgents, type ServedAgentOptions } from './rollouts/served-agents.ts'
export type { ServeBounds, ServiceOptions, ServiceState, ServiceStatus } from './rollouts/service-parts.ts'
