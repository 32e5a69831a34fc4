export {
  type BackendConfig,
  backendSecrets,
  type ModelConfig,
  type ModelConfigInput,
  modelConfigSchema,
  type NamedModelInput,
  namedModelSchema,
  type Price,
  shownUrl,
} from './config.ts'
export {
  type BackendStatus,
  type InvalidReply,
  type CallHooks,
  type CompleteReply,
  type LaterTurn,
  laterTurns,
  type LimitChange,
  type ModelCall,
  type ModelCallEvent,
  modelCalls,
  type ModelClient,
  type ModelReply,
  type ModelStatus,
  type SentCall,
} from './model-client.ts'

export { estimatedUsage, priceOf } from './usage.ts'
export {
  callRecord,
  chainHash,
  type Recorder,
  roundedMs,
  samplingRecord,
  Session,
  type SessionReply,
  type ToolAnswers,
} from './session.ts'
export { DueVersions } from './due-versions.ts'
export { SampledVersions, type VersionLag, WeightVersions } from './weight-versions.ts'
export { decodePool } from './backend/decode-pool.ts'

export { HttpBackend, type HttpBackendOptions } from './backend/http-backend.ts'

export { readSampled } from './exact/read-sampled.ts'
export type { TokenStream } from './exact/token-stream.ts'
export { costOf, Model, withUsage } from './model/model.ts'
export { PauseGate, type PauseMode, pauseModes } from './model/pause-gate.ts'
export { preflight } from './server-info/preflight.ts'
export {
  type BackendFacts,
  type BackendKind,
  engineOf,
  listedModels,
  probeBackend,
  type ServedModel,
  type TokenFields,
} from './server-info/probe.ts'
export { apiAccessOfUrl, apiAccessOf, defaultBackendUrl, resolveModelConfig } from './resolve-config.ts'

export { retryTable } from './model/retry.ts'

export type { EngineLoad } from './limits/in-flight.ts'
export { type LimitLease, type LimitStatus, SharedLimits } from './limits/shared-limits.ts'
export { type GrantMessage, type LeaseMessage, type LimitsHandle, WorkerLimits } from './limits/worker-limits.ts'
export type { RecordedSession } from './recorded-session.ts'
