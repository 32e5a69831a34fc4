export type {
  Backend,
  BackendReply,
  BackendRequest,
  LaterVersion,
  ModelRequest,
  OwnWords,
  PartialReply,
  RawReply,
  ReplyDelta,
  ReplyEvent,
  ReplySink,
  ResponseFormat,
  ToolChoice,
} from './backend.ts'
export { backendSecrets, shownUrl } from './backend-secrets.ts'
export { modelConfigSchema, namedModelSchema } from './model-config.ts'
export type { BackendConfig, ModelConfig, ModelConfigInput, NamedModelInput, Price } from './model-config.ts'
export type { CallHooks, LimitChange, ModelClient, ModelStatus, SentCall } from './model-contract.ts'
export type { BrokenReply, CompleteReply, ModelReply } from './model-reply.ts'
export { isMadeUp, MadeUpIds } from './wire/made-up-ids.ts'
export { messageJson } from './wire/message-json.ts'
export type { Recorder } from './recorder.ts'
export { callRecord, chainHash, Session } from './session.ts'
export { samplingRecord } from './sampling-record.ts'
export type { SessionReply, ToolAnswers } from './session.ts'
export type { Tape } from './tape.ts'
export { decodePool } from './tokens/decode-pool.ts'
export { descriptorBudget } from './http/descriptor-budget.ts'
export { HttpBackend } from './http/http-backend.ts'
export type { HttpBackendOptions } from './http/http-backend.ts'
export { poolTo } from './http/pool-to.ts'
export { proxyFor } from './http/proxy.ts'
export { readAuthority } from './http/read-authority.ts'
export { lastingFailure, networkCause } from './http/unreachable.ts'
export { Model } from './model.ts'
export { modelCalls } from './model-calls.ts'
export type { ModelCall, ModelCallEvent } from './model-calls.ts'
export { preflight } from './preflight.ts'
export { costOf, priceOf } from './prices.ts'
export { untoldUsage, withUsage } from './untold-usage.ts'
export { engineOf, listedModels, probeBackend } from './probe/probe-backend.ts'
export type { BackendFacts } from './probe/probe-backend.ts'
export type { BackendKind, ServedModel, TokenFields } from './probe/probe-answers.ts'
export { askedByUrl, askedInApi, defaultBackendUrl, resolveModelConfig } from './resolve-model.ts'
export { askedDelayMs } from './asked-delay.ts'
export { retryAfterMs } from './wire/retry-after.ts'
export { isSealed, keepSealed } from './wire/sealed-reply.ts'
export { thoughtIn } from './wire/thinking-part.ts'
export { retryTable } from './retry-table.ts'
export { tokenRequestOf } from './tokens/token-request.ts'
export type { GrantMessage, LeaseMessage } from './limits/lease-messages.ts'
export type { LimitLease } from './limits/limit-lease.ts'
export { SharedLimits } from './limits/shared-limits.ts'
export { openLimits } from './limits/worker-limits.ts'
export type { LimitsHandle, WorkerLimits } from './limits/worker-limits.ts'
