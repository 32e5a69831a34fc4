export type {
  Backend,
  BackendReply,
  BackendRequest,
  ModelRequest,
  PartialReply,
  RawReply,
  ReplyDelta,
  ReplyEvent,
  ReplySink,
  ResponseFormat,
  ToolChoice,
} from './backend.ts'
export { modelConfigSchema, namedModelSchema } from './model-config.ts'
export type { BackendConfig, ModelConfig, ModelConfigInput, NamedModelInput, Price } from './model-config.ts'
export type { CallHooks, LimitChange, ModelClient, ModelStatus, SentCall } from './model-contract.ts'
export type { BrokenReply, CompleteReply, ModelReply } from './model-reply.ts'
export { estimatedTokens, tokensOfText } from './estimated-tokens.ts'
export { messageJson } from './message-json.ts'
export type { Recorder } from './recorder.ts'
export { callRecord, chainHash, Session } from './session.ts'
export type { SessionReply, ToolAnswers } from './session.ts'
export type { Tape } from './tape.ts'
export { decodePool } from './decode-pool.ts'
export { descriptorBudget } from './descriptor-budget.ts'
export { HttpBackend } from './http-backend.ts'
export type { HttpBackendOptions } from './http-backend.ts'
export { Model } from './model.ts'
export { modelCalls } from './model-calls.ts'
export type { ModelCall, ModelCallEvent } from './model-calls.ts'
export { preflight } from './preflight.ts'
export { costOf, modelPrice, priceOf } from './prices.ts'
export { engineOf, probeBackend } from './probe-backend.ts'
export type { BackendFacts } from './probe-backend.ts'
export type { BackendKind, ServedModel, TokenFields } from './_probe-answers.ts'
export { askedByUrl, defaultBackendUrl, resolveModelConfig } from './resolve-model.ts'
export { retryAfterMs } from './retry-after.ts'
export { retryTable } from './retry-table.ts'
export { tokenRequestOf } from './token-request.ts'
export type { GrantMessage, LeaseMessage } from './lease-messages.ts'
export type { LimitLease } from './limit-lease.ts'
export { SharedLimits } from './shared-limits.ts'
export { openLimits } from './worker-limits.ts'
export type { LimitsHandle, WorkerLimits } from './worker-limits.ts'
